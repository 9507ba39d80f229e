// The backward by wgmma, on packed operands, against explicit attention in f64 on the CPU and against
// the mma.sync kernels, from the same rounded inputs.
#include "ops/flash_backward_hopper.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/allocator.h"
#include "core/cuda.h"
#include "tests/ops/flash_helpers.h"

namespace gradus {
namespace {

using Case = FlashCase;

constexpr double kUnwritten = 77;  // exact in 16 bits

/// Queries and one head more in each group, so that gradients are written between other numbers; keys
/// and values packed.
struct Operands {
  Case c;
  Tensor queries, keys, o, lse, d_o;
  FlashInputs in;

  Operands(const Case& shape, DType dtype) : c(shape) {
    Generator g(23);
    auto numbers = [&](const Shape& s) {
      return to(cast(normal(s, g, 0, 1, DType::f32), dtype), kCuda);
    };
    queries = numbers({c.B, c.Tq, c.groups, c.members + 1, c.d});
    keys = numbers({c.B, c.Tk, c.groups, 2, c.d});
    d_o = packed_heads(numbers({c.B, c.Tq, c.groups, c.members, c.d}), 0, c.members);
    o = packed_heads(empty({c.B, c.Tq, c.groups, c.members, c.d}, dtype, kCuda), 0, c.members);
    lse = empty({c.B, c.groups * c.members, c.Tq}, DType::f32, kCuda);
    in = {packed_heads(queries, 0, c.members), packed_head(keys, 0), packed_head(keys, 1), c.causal,
          1 / std::sqrt(double(c.d))};
    flash_forward(in, o, lse);
  }

  using Backward = void (*)(const FlashInputs&, const Tensor&, const Tensor&, const Tensor&,
                            const FlashGradients&);
  /// The packed gradients of queries and keys.
  Tensors gradients(Backward backward) const {
    Tensor dq = full(queries.shape(), kUnwritten, queries.dtype(), kCuda);
    Tensor dkv = full(keys.shape(), NAN, keys.dtype(), kCuda);
    backward(in, o, lse, d_o,
             {packed_heads(dq, 0, c.members), packed_head(dkv, 0), packed_head(dkv, 1)});
    return {dq, dkv};
  }

  /// dq, dk, dv in f64 on the CPU.
  Tensors exact() const {
    auto leaf = [](const Tensor& x, const Shape& s) {
      return reshape(cast(to(contiguous(x), kCpu), DType::f64), s).detach();
    };
    Shape many{c.B, c.groups * c.members, c.Tq, c.d}, few{c.B, c.groups, c.Tk, c.d};
    Tensors x{leaf(in.q, many), leaf(in.k, few), leaf(in.v, few)};
    for (const Tensor& t : x) t.requires_grad_();
    return grad(attention(x[0], x[1], x[2], {.causal = c.causal}), x, leaf(d_o, many));
  }
};

void by_wgmma(const FlashInputs& in, const Tensor& o, const Tensor& lse, const Tensor& d_o,
              const FlashGradients& to) {
  EXPECT_FALSE(flash_backward_hopper(in, o, lse, d_o, to, false));
}

/// Tiles are 128 or 64 queries × 128 keys: sizes on both sides of their borders, rows that see no key,
/// more pieces of work than multiprocessors.
const Case kCases[] = {
    {1, 1, 1, 128, 128, 64, false}, {2, 3, 1, 256, 256, 64, true},  {2, 2, 2, 200, 200, 64, true},
    {1, 2, 1, 63, 130, 64, false},  {1, 1, 2, 1, 77, 64, true},     {1, 2, 1, 300, 100, 64, true},
    {1, 2, 3, 333, 555, 64, true},  {2, 40, 1, 260, 260, 64, true}, {1, 1, 1, 5, 1, 64, false},
    {1, 1, 1, 64, 128, 128, false}, {2, 2, 1, 257, 257, 128, true}, {1, 2, 1, 65, 190, 128, false},
    {1, 1, 2, 1, 300, 128, true},   {1, 2, 2, 333, 200, 128, true}, {1, 1, 1, 1, 1, 128, true},
};

template <class F>
void for_each_case(F f) {
  for_each_flash_case<Operands>(
      kCases, [](const Operands& x) { return flash_backward_hopper_fits(x.in, x.d_o); }, f);
}

// P and dS are rounded to 16 bits before their products: a relative error of u each, at random signs;
// the results are rounded once more. 4 u covers these three, and that δ comes from a rounded O.
TEST(FlashBackwardHopper, EqualsExplicitAttentionInF64) {
  for_each_case([](const Operands& x) {
    Tensors got = x.gradients(by_wgmma), want = x.exact();
    double tolerance = 4 * roundoff(x.in.q.dtype());
    EXPECT_LT(error_of(packed_head(got[1], 1), want[2]), tolerance);
    if (x.c.Tk == 1) return;  // one key: dq and dk are exactly 0 in f64, and rounding in 16 bits
    EXPECT_LT(error_of(packed_heads(got[0], 0, x.c.members), want[0]), tolerance);
    EXPECT_LT(error_of(packed_head(got[1], 0), want[1]), tolerance);
  });
}

// Both round P and dS at the same places and differ in the order of f32 sums and in 2^x. That moves few
// values across a rounding border: at most one in four by one ulp, 2 u, is √¼ · 2 u = u.
TEST(FlashBackwardHopper, EqualsTheKernelsWithoutWgmma) {
  for_each_case([](const Operands& x) {
    Tensors got = x.gradients(by_wgmma), want = x.gradients(flash_backward_mma);
    double tolerance = roundoff(x.in.q.dtype());
    EXPECT_LT(error_of(packed_head(got[1], 1), packed_head(want[1], 1)), tolerance);
    if (x.c.Tk == 1) return;
    EXPECT_LT(error_of(packed_heads(got[0], 0, x.c.members), packed_heads(want[0], 0, x.c.members)),
              tolerance);
    EXPECT_LT(error_of(packed_head(got[1], 0), packed_head(want[1], 0)), tolerance);
  });
}

TEST(FlashBackwardHopper, WritesWhatItShouldAndEqualBitsEachTime) {
  for_each_case([](const Operands& x) {
    Tensors first = x.gradients(by_wgmma);
    for (double beside : packed_heads(first[0], x.c.members, 1).to_vector())
      ASSERT_EQ(beside, kUnwritten);
    for (int i = 0; i < 2; ++i) {
      Tensors again = x.gradients(by_wgmma);
      EXPECT_EQ(again[0].to_vector(), first[0].to_vector());
      EXPECT_EQ(again[1].to_vector(), first[1].to_vector());
    }
  });
}

// Of dq a sum of what was rounded. Of dv the sum of dO, so exact but for an f32 sum of at most 600 numbers:
// two of its roundings in each, at random signs. Of dk nothing.
TEST(FlashBackwardHopper, SumsOverPositionsComeInPassing) {
  for_each_case([](const Operands& x) {
    Tensor dq = empty(x.in.q.shape(), x.in.q.dtype(), kCuda), dk = empty_like(x.in.k);
    Tensor dv = empty_like(x.in.v);
    PoisonAllocations poison;
    Tensor parts = flash_backward_hopper(x.in, x.o, x.lse, x.d_o, {dq, dk, dv}, true);
    ASSERT_EQ(bool(parts), x.c.members == 1 && x.c.Tq == x.c.Tk);
    if (!parts) return;
    Tensors want = x.exact();
    for (Tensor& t : want) t = sum(t, {0, 2});  // (H, d)
    Tensor sums = sum(cast(to(parts, kCpu), DType::f64), {0});
    auto part = [&](int64_t i) { return select(sums, 1, i); };
    EXPECT_LT(error_of(part(2), want[2]), 2 * std::sqrt(600) * roundoff(DType::f32));
    for (double v : part(1).to_vector()) ASSERT_EQ(v, 0);
    if (x.c.Tk == 1) return;
    EXPECT_LT(error_of(part(0), want[0]), 4 * roundoff(x.in.q.dtype()));
  });
}

// edge-cases: a row that sees no key has gradient 0, whatever stands in dO.
TEST(FlashBackwardHopper, QueriesThatSeeNoKeyGetZero) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  Operands x({1, 2, 1, 300, 100, 64, true}, DType::bf16);
  if (!flash_backward_hopper_fits(x.in, x.d_o)) GTEST_SKIP() << "no GPU of this kind";
  Tensor dq = packed_heads(x.gradients(by_wgmma)[0], 0, 1);
  for (double v : slice(dq, 3, 0, 200).to_vector()) ASSERT_EQ(v, 0);
  EXPECT_NE(slice(dq, 3, 201, 202).to_vector()[0], 0);
}

TEST(FlashBackwardHopper, LeavesRepeatedRowsToOthers) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  Operands x({1, 1, 1, 128, 128, 64, true}, DType::bf16);
  Tensor repeated = expand(slice(x.d_o, 3, 0, 1), x.d_o.shape());
  EXPECT_FALSE(flash_backward_hopper_fits(x.in, repeated));
}

}  // namespace
}  // namespace gradus
