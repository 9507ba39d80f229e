// The forward by wgmma, and the one by mma.sync beside it, on packed operands, against explicit
// attention in f64 on the CPU from the same rounded inputs.
#include "ops/flash_forward_hopper.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/allocator.h"
#include "core/cuda.h"
#include "tests/ops/flash_helpers.h"

namespace gradus {
namespace {

using Case = FlashCase;

constexpr double kUnwritten = 77;  // exact in 16 bits

struct Output {
  Tensor packed, o, lse;
};

/// Queries, keys and values packed in one tensor where their lengths agree; outputs with one head more
/// in each group, so that they are written between other numbers.
struct Operands {
  Case c;
  FlashInputs in;

  Operands(const Case& shape, DType dtype, Tensor key_factors = {}) : c(shape) {
    Generator g(29);
    auto numbers = [&](int64_t T, int64_t width) {
      return normal({c.B, T, c.groups, width, c.d}, g, 0, 1, DType::f32);
    };
    auto rounded = [&](const Tensor& x) { return to(cast(x, dtype), kCuda); };
    if (c.Tq == c.Tk && !key_factors) {
      Tensor qkv = rounded(numbers(c.Tq, c.members + 2));
      in = {packed_heads(qkv, 0, c.members), packed_head(qkv, c.members),
            packed_head(qkv, c.members + 1)};
    } else {
      Tensor q = rounded(numbers(c.Tq, c.members)), keys = numbers(c.Tk, 1),
             values = numbers(c.Tk, 1);
      if (key_factors) keys = mul(keys, key_factors);
      in = {packed_heads(q, 0, c.members), packed_head(rounded(keys), 0),
            packed_head(rounded(values), 0)};
    }
    in.causal = c.causal, in.scale = 1 / std::sqrt(double(c.d));
  }

  using Forward = void (*)(const FlashInputs&, const Tensor&, const Tensor&);
  Output output(Forward forward) const {
    Tensor packed =
        full({c.B, c.Tq, c.groups, c.members + 1, c.d}, kUnwritten, in.q.dtype(), kCuda);
    Output y{packed, packed_heads(packed, 0, c.members),
             full({c.B, c.groups * c.members, c.Tq}, NAN, DType::f32, kCuda)};
    forward(in, y.o, y.lse);
    return y;
  }

  /// In f64 on the CPU, q (B, H, Tq, d), k and v (B, groups, Tk, d).
  Tensor exact(const Tensor& x, int64_t heads, int64_t T) const {
    return reshape(cast(to(contiguous(x), kCpu), DType::f64), {c.B, heads, T, c.d});
  }
  int64_t H() const { return c.groups * c.members; }
  Tensor exact_o() const {
    return attention(exact(in.q, H(), c.Tq), exact(in.k, c.groups, c.Tk),
                     exact(in.v, c.groups, c.Tk), {.causal = c.causal});
  }
  /// log Σ_j e^{s_ij}, s = q kᵀ · scale over the keys that i sees.
  std::vector<double> exact_lse() const {
    Tensor q = reshape(exact(in.q, H(), c.Tq), {c.B, c.groups, c.members * c.Tq, c.d});
    std::vector<double> s = matmul(q, transpose(exact(in.k, c.groups, c.Tk), 2, 3)).to_vector(),
                        lse;
    for (size_t row = 0; row < s.size() / c.Tk; ++row) {
      int64_t i = int64_t(row) % c.Tq,
              seen = c.causal ? std::clamp<int64_t>(i + 1 + c.Tk - c.Tq, 0, c.Tk) : c.Tk;
      const double* from = &s[row * c.Tk];
      double top = seen ? *std::max_element(from, from + seen) * in.scale : 0, sum = 0;
      for (int64_t j = 0; j < seen; ++j) sum += std::exp(from[j] * in.scale - top);
      lse.push_back(top + std::log(sum));
    }
    return lse;
  }
};

/// Tiles are 128 queries, 64 a warpgroup, × 128 keys: sizes on both sides of their borders, rows that
/// see no key, warpgroups that see fewer tiles than their neighbour or none, more items than blocks.
const Case kCases[] = {
    {1, 1, 1, 128, 128, 64, false}, {2, 3, 1, 256, 256, 64, true},   {2, 2, 2, 200, 200, 64, true},
    {1, 2, 1, 63, 130, 64, false},  {1, 1, 2, 1, 77, 64, true},      {1, 2, 1, 300, 100, 64, true},
    {1, 2, 3, 333, 555, 64, true},  {2, 30, 5, 190, 190, 64, true},  {1, 1, 1, 5, 1, 64, false},
    {1, 1, 1, 64, 128, 128, false}, {2, 2, 1, 257, 257, 128, true},  {1, 2, 1, 65, 190, 128, false},
    {1, 1, 2, 1, 300, 128, true},   {1, 2, 2, 333, 200, 128, true},  {1, 1, 1, 1, 1, 128, true},
    {1, 2, 1, 700, 640, 128, true}, {2, 20, 2, 130, 190, 128, true}, {1, 1, 1, 129, 129, 128, true},
};

template <class F>
void for_each_case(F f) {
  for_each_flash_case<Operands>(
      kCases, [](const Operands& x) { return flash_forward_hopper_fits(x.in, x.in.q); }, f);
}

// P is rounded to 16 bits before its product with V, O once more: a relative error of u each.
//
// A score is a sum of d products in f32: |error| ≤ d 2⁻²⁴ scale Σ|q k|. With normal numbers Σ|q k| is
// 0.64 d, and the largest row of these cases has 2 d: 2 d² 2⁻²⁴/√d < 2⁻¹² at d = 128. The error of lse is
// at most that of its scores, and a rounding of 2^x and log₂.
void expect_exact(const Operands& x, const Output& y) {
  EXPECT_LT(error_of(y.o, x.exact_o()), 2 * roundoff(x.in.q.dtype()));
  std::vector<double> got = y.lse.to_vector(), want = x.exact_lse();
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isinf(want[i]))
      ASSERT_EQ(got[i], want[i]);
    else
      ASSERT_NEAR(got[i], want[i], 0x1p-12);
  }
}

TEST(FlashForwardHopper, EqualsExplicitAttentionInF64) {
  for_each_case([](const Operands& x) { expect_exact(x, x.output(flash_forward_hopper)); });
}
TEST(FlashForwardHopper, SoDoTheKernelsWithoutWgmma) {
  for_each_case([](const Operands& x) { expect_exact(x, x.output(flash_forward_mma)); });
}

// Both round P, against other maxima, and O: two errors of u at random signs in each.
TEST(FlashForwardHopper, EqualsTheKernelsWithoutWgmma) {
  for_each_case([](const Operands& x) {
    Output got = x.output(flash_forward_hopper), want = x.output(flash_forward_mma);
    EXPECT_LT(error_of(got.o, want.o), 2 * roundoff(x.in.q.dtype()));
  });
}

TEST(FlashForwardHopper, WritesWhatItShouldAndEqualBitsEachTime) {
  for_each_case([](const Operands& x) {
    Output first = x.output(flash_forward_hopper), again = x.output(flash_forward_hopper);
    for (double beside : packed_heads(first.packed, x.c.members, 1).to_vector())
      ASSERT_EQ(beside, kUnwritten);
    EXPECT_EQ(again.packed.to_vector(), first.packed.to_vector());
    EXPECT_EQ(again.lse.to_vector(), first.lse.to_vector());
  });
}

// The walk goes from the last keys to the first. Keys that grow on the way raise the maximum by more
// than the lag of 8 at every tile, and those that shrink leave it where it was.
TEST(FlashForwardHopper, FollowsMaximaThatGrowAndShrink) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  for (int64_t d : {64, 128})
    for (bool first_large : {true, false}) {
      Tensor factors = empty({1, 640, 1, 1, 1});
      for (int64_t j = 0; j < 640; ++j)
        factors.set(j, std::exp2(double(first_large ? 639 - j : j) / 128 - 1));
      Operands x({1, 1, 2, 150, 640, d, false}, DType::bf16, factors);
      if (!flash_forward_hopper_fits(x.in, x.in.q)) GTEST_SKIP() << "no GPU of this kind";
      EXPECT_LT(error_of(x.output(flash_forward_hopper).o, x.exact_o()), 2 * roundoff(DType::bf16));
    }
}

// edge-cases: a row that sees no key is 0.
TEST(FlashForwardHopper, QueriesThatSeeNoKeyGetZero) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  for (int64_t d : {64, 128}) {
    Operands x({1, 2, 1, 300, 100, d, true}, DType::bf16);
    if (!flash_forward_hopper_fits(x.in, x.in.q)) GTEST_SKIP() << "no GPU of this kind";
    Output y = x.output(flash_forward_hopper);
    for (double v : slice(y.o, 3, 0, 200).to_vector()) ASSERT_EQ(v, 0);
    for (double v : slice(y.lse, 2, 0, 200).to_vector()) ASSERT_EQ(v, -INFINITY);
    EXPECT_NE(slice(y.o, 3, 200, 201).to_vector()[0], 0);
  }
}

TEST(FlashForwardHopper, LeavesRepeatedRowsToOthers) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  Operands x({1, 1, 1, 128, 128, 64, true}, DType::bf16);
  FlashInputs repeated = x.in;
  repeated.k = expand(slice(x.in.k, 2, 0, 1), x.in.k.shape());
  EXPECT_FALSE(flash_forward_hopper_fits(repeated, x.in.q));
}

TEST(FlashForwardHopper, RefusesAScaleThatIsNotPositive) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  Operands x({1, 1, 1, 128, 128, 64, true}, DType::bf16);
  x.in.scale = -1;
  EXPECT_THROW(x.output(flash_forward), Error);
}

}  // namespace
}  // namespace gradus
