#pragma once
// What the tests of flash attention share.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/allocator.h"
#include "core/cuda.h"
#include "ops/ops.h"

namespace gradus {

/// `members` query heads share each of `groups` heads of keys and values.
struct FlashCase {
  int64_t B, groups, members, Tq, Tk, d;
  bool causal;
};

/// Heads `first` … `first + n − 1` of each group of packed (B, T, groups, width, d), as
/// (B, groups, n, T, d).
inline Tensor packed_heads(const Tensor& packed, int64_t first, int64_t n) {
  return permute(slice(packed, 3, first, first + n), {0, 2, 3, 1, 4});
}
inline Tensor packed_head(const Tensor& packed, int64_t i) {
  return select(packed_heads(packed, i, 1), 2, 0);
}

/// ‖a − b‖ / ‖b‖ (Frobenius); NaN counts as infinite.
inline double error_of(const Tensor& a, const Tensor& b) {
  std::vector<double> x = a.to_vector(), y = b.to_vector();
  double difference = 0, size = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  double e = size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
  return std::isnan(e) ? INFINITY : e;
}

/// f(operands) for the operands of each case in bf16 and f16, in memory that nobody has written. Skips
/// the test where there is no GPU whose kernels they fit.
template <class Operands, class Cases, class Fits, class F>
void for_each_flash_case(const Cases& cases, Fits fits, F f) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  PoisonAllocations poison;
  for (DType dtype : {DType::bf16, DType::f16})
    for (const FlashCase& c : cases) {
      Operands x(c, dtype);
      if (!fits(x)) GTEST_SKIP() << "no GPU of this kind";
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " Tq " << c.Tq << " Tk " << c.Tk << " d "
                                      << c.d << " group " << c.members);
      f(x);
    }
}

}  // namespace gradus
