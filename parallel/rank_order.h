#pragma once
// Sums and maxima over ranks, element by element, always in the order of the ranks: the same bits on
// each rank and in each run, whoever computes them. 16-bit types are added in f32 and rounded once.
#include <algorithm>
#include <vector>

#include "parallel/communicator.h"

namespace gradus::parallel {

/// out[i] ← in₀[i] + in₁[i] + … (or the largest; a NaN stays one), for `count` elements, written into
/// each of `outs`. An output may be one of the inputs.
template <class T>
void reduce_in_rank_order(Reduce how, const std::vector<const void*>& ins,
                          const std::vector<void*>& outs, int64_t count) {
  using C = Compute<T>;
  constexpr int64_t kBlock = 512;
  C sum[kBlock];
  const auto input = [&](size_t k) { return static_cast<const T*>(ins[k]); };
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (int64_t i = 0; i < n; ++i) sum[i] = C(input(0)[begin + i]);
    for (size_t k = 1; k < ins.size(); ++k) {
      const T* x = input(k) + begin;
      if (how == Reduce::sum)
        for (int64_t i = 0; i < n; ++i) sum[i] = C(sum[i] + C(x[i]));
      else
        for (int64_t i = 0; i < n; ++i)
          sum[i] = C(x[i]) > sum[i] || C(x[i]) != C(x[i]) ? C(x[i]) : sum[i];
    }
    for (void* out : outs)
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[begin + i] = T(sum[i]);
  }
}

inline void reduce_in_rank_order(DType dtype, Reduce how, const std::vector<const void*>& ins,
                                 const std::vector<void*>& outs, int64_t count) {
  dispatch_all(dtype, [&]<class T>() { reduce_in_rank_order<T>(how, ins, outs, count); });
}

}  // namespace gradus::parallel
