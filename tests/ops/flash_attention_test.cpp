// Flash attention on a GPU against explicit attention in f64 on the CPU, from the same rounded inputs.
#include "ops/flash_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/allocator.h"
#include "core/cuda.h"
#include "tests/ops/flash_helpers.h"

namespace gradus {
namespace {

struct Case {
  int64_t B, H, Hkv, Tq, Tk, d;
  bool causal;
};

struct Result {
  Tensor o, dq, dk, dv;
};

/// Heads lie in memory as (B, T, H, d), as a packed projection leaves them.
Tensor heads(const Shape& s, Generator& g, DType dtype, Device device) {
  Tensor x = normal({s[0], s[2], s[1], s[3]}, g, 0, 1, DType::f32);
  return permute(to(cast(x, dtype), device), {0, 2, 1, 3});
}

Result run(const Case& c, DType rounded, DType dtype, Device device) {
  Generator g(17);
  auto input = [&](int64_t H, int64_t T) {
    return cast(heads({c.B, H, T, c.d}, g, rounded, device), dtype).detach();
  };
  Tensor q = input(c.H, c.Tq), k = input(c.Hkv, c.Tk), v = input(c.Hkv, c.Tk),
         dy = input(c.H, c.Tq);
  for (const Tensor& t : {q, k, v}) t.requires_grad_();
  EXPECT_EQ(flash_attention_fits(q, k, v), device.is_cuda());
  Tensor y = attention(q, k, v, {.causal = c.causal});
  Tensors dx = grad(y, {q, k, v}, dy);
  return {y, dx[0], dx[1], dx[2]};
}

// P and dS are rounded to 16 bits before their products: a relative error of u each, at random signs;
// the results are rounded once more. 4 u covers these three and the two products' own inputs.
TEST(FlashAttention, EqualsExplicitAttentionInF64) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  PoisonAllocations poison;
  for (DType dtype : {DType::bf16, DType::f16})
    for (const Case& c : {Case{2, 3, 3, 128, 128, 64, true}, Case{1, 4, 2, 200, 200, 64, true},
                          Case{2, 2, 2, 63, 130, 64, false}, Case{1, 2, 1, 1, 77, 64, true},
                          Case{1, 2, 2, 300, 100, 64, true}, Case{2, 4, 1, 257, 257, 128, true},
                          Case{1, 2, 2, 65, 190, 128, false}, Case{1, 1, 1, 1, 1, 128, true}}) {
      Result got = run(c, dtype, dtype, kCuda), want = run(c, dtype, DType::f64, kCpu);
      double tolerance = 4 * roundoff(dtype);
      SCOPED_TRACE(testing::Message()
                   << name_of(dtype) << " Tq " << c.Tq << " Tk " << c.Tk << " d " << c.d);
      EXPECT_LT(error_of(got.o, want.o), tolerance);
      EXPECT_LT(error_of(got.dv, want.dv), tolerance);
      if (c.Tk == 1) continue;  // one key: dq and dk are exactly 0 in f64, and rounding in 16 bits
      EXPECT_LT(error_of(got.dq, want.dq), tolerance);
      EXPECT_LT(error_of(got.dk, want.dk), tolerance);
    }
}

TEST(FlashAttention, EqualCallsGiveEqualBits) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  Case c{2, 4, 2, 500, 500, 64, true};
  Result a = run(c, DType::bf16, DType::bf16, kCuda), b = run(c, DType::bf16, DType::bf16, kCuda);
  EXPECT_EQ(a.o.to_vector(), b.o.to_vector());
  EXPECT_EQ(a.dq.to_vector(), b.dq.to_vector());
  EXPECT_EQ(a.dk.to_vector(), b.dk.to_vector());
  EXPECT_EQ(a.dv.to_vector(), b.dv.to_vector());
}

}  // namespace
}  // namespace gradus
