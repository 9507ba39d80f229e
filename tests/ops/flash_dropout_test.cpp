// Dropout and key lengths inside flash attention, against explicit attention in f64 on the CPU, which
// draws the same words and sees a mask instead of lengths.
#include "ops/flash_dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/allocator.h"
#include "core/cuda.h"
#include "ops/flash_attention.h"
#include "ops/flash_forward_hopper.h"
#include "tests/ops/flash_helpers.h"

namespace gradus {
namespace {

using Case = FlashCase;

/// Operands in bf16, and what flash attention and f64 make of them.
struct Operands {
  Case c;
  Tensor q, k, v, d_o;  // (B, H, T, d) of the groups, members together
  FlashInputs in;

  explicit Operands(const Case& shape) : c(shape) {
    Generator g(31);
    auto numbers = [&](int64_t heads, int64_t T) {
      return to(cast(normal({c.B, heads, T, c.d}, g, 0, 1, DType::f32), DType::bf16), kCuda);
    };
    q = numbers(H(), c.Tq), k = numbers(c.groups, c.Tk), v = numbers(c.groups, c.Tk);
    d_o = numbers(H(), c.Tq);
    in = {grouped(q), k, v, c.causal, 1 / std::sqrt(double(c.d))};
  }
  int64_t H() const { return c.groups * c.members; }
  Tensor grouped(const Tensor& x) const {
    return reshape(x, {c.B, c.groups, c.members, c.Tq, c.d});
  }

  void drop(double p, Generator& g) {
    in.stream = g.next(), in.threshold = drop_threshold(p), in.keep_scale = 1 / (1 - p);
  }
  void set_lengths(const std::vector<int>& lengths) {
    in.lengths = empty({c.B}, DType::i32);
    for (int64_t b = 0; b < c.B; ++b) in.lengths.set(b, lengths[size_t(b)]);
    in.lengths = to(in.lengths, kCuda);
  }

  using Forward = void (*)(const FlashInputs&, const Tensor&, const Tensor&);
  /// o, and with a backward dq, dk, dv.
  Tensors results(Forward forward, bool backward) const {
    Tensor o = empty_like(in.q), lse = empty({c.B, H(), c.Tq}, DType::f32, kCuda);
    forward(in, o, lse);
    if (!backward) return {o};
    FlashGradients to{empty_like(in.q), empty_like(k), empty_like(v)};
    flash_backward(in, o, lse, grouped(d_o), to);
    return {o, to.dq, to.dk, to.dv};
  }
  Tensors exact(AttentionOptions options) const {
    auto leaf = [](const Tensor& x) { return cast(to(x, kCpu), DType::f64).detach(); };
    Tensors x{leaf(q), leaf(k), leaf(v)};
    for (const Tensor& t : x) t.requires_grad_();
    options.causal = c.causal;
    Tensor o = attention(x[0], x[1], x[2], options);
    Tensors dx = grad(o, x, leaf(d_o));
    return {o, dx[0], dx[1], dx[2]};
  }
};

void expect_close(const Tensors& got, const Tensors& want) {
  const char* names[] = {"o", "dq", "dk", "dv"};
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LT(error_of(got[i], want[i]), 4 * roundoff(DType::bf16)) << names[i];
}

bool no_gpu() { return cuda_device_count() == 0 || !has_bf16(kCuda); }

// With V = 1 (the unit matrix) O is P̃ itself, and with dO = 1 so is dVᵀ: their zeros are what was dropped.
// 63 and 61 keys are no multiples of four.
TEST(FlashDropout, DropsWhatExplicitAttentionDrops) {
  if (no_gpu()) GTEST_SKIP() << "no GPU";
  for (int64_t Tk : {64, 63, 61}) {
    Operands x({2, 2, 2, 64, Tk, 64, false});
    Generator g(7);
    x.drop(0.4, g);
    auto unit = [&](int64_t heads, int64_t T) {
      Tensor one = zeros({T, 64});
      for (int64_t i = 0; i < T; ++i) one.set(i * 64 + i, 1);
      return contiguous(expand(to(cast(one, DType::bf16), kCuda), {2, heads, T, 64}));
    };
    x.in.v = x.v = unit(x.c.groups, Tk);
    x.d_o = unit(x.H(), 64);
    Tensors y = x.results(flash_forward, true);
    std::vector<double> o = y[0].to_vector(), dv = y[3].to_vector();
    for (int64_t head = 0; head < 2 * x.H(); ++head)
      for (int64_t i = 0; i < 64; ++i)
        for (int64_t j = 0; j < Tk; ++j) {
          bool kept = x.in.stream.keep(uint64_t((head * 64 + i) * Tk + j), x.in.threshold);
          ASSERT_EQ(o[size_t((head * 64 + i) * 64 + j)] != 0, kept) << head << " " << i << " " << j;
        }
    // dV_j of a group: the sum of column j of its heads' P̃
    for (int64_t group = 0; group < 4; ++group)
      for (int64_t j = 0; j < Tk; ++j)
        for (int64_t i = 0; i < 64; ++i) {
          bool kept = false;
          for (int64_t head = 2 * group; head < 2 * group + 2; ++head)
            kept |= x.in.stream.keep(uint64_t((head * 64 + i) * Tk + j), x.in.threshold);
          ASSERT_EQ(dv[size_t((group * Tk + j) * 64 + i)] != 0, kept)
              << group << " " << j << " " << i;
        }
  }
}

// P, dP and dS are rounded to 16 bits at random signs, the results once more: 4 u, as without dropout; the
// factor 1/(1 − p) scales what is kept and its error alike.
TEST(FlashDropout, EqualsExplicitAttentionInF64) {
  if (no_gpu()) GTEST_SKIP() << "no GPU";
  PoisonAllocations poison;
  for (const Case& c : {Case{2, 2, 1, 200, 200, 64, true}, Case{1, 1, 3, 65, 190, 64, false},
                        Case{2, 1, 2, 130, 260, 128, true}, Case{1, 2, 1, 77, 129, 128, false}}) {
    SCOPED_TRACE(testing::Message() << "Tq " << c.Tq << " Tk " << c.Tk << " d " << c.d);
    Operands x(c);
    Generator g(11), same(11);
    x.drop(0.1, g);
    Tensors got = x.results(flash_forward, true);
    expect_close(got, x.exact({.dropout = 0.1, .generator = &same}));
    EXPECT_EQ(x.results(flash_forward, true)[2].to_vector(), got[2].to_vector());
  }
}

TEST(FlashDropout, WithProbabilityOneDropsAll) {
  if (no_gpu()) GTEST_SKIP() << "no GPU";
  Operands x({1, 1, 1, 70, 70, 64, true});
  x.in.threshold = drop_threshold(1), x.in.keep_scale = 0;
  for (const Tensor& y : x.results(flash_forward, true))
    for (double v : y.to_vector()) ASSERT_EQ(v, 0);
}

TEST(FlashLengths, EqualAMaskInF64) {
  if (no_gpu()) GTEST_SKIP() << "no GPU";
  PoisonAllocations poison;
  const std::vector<int> lengths = {300, 0, 5, 128, 193};
  for (int64_t d : {64, 128})
    for (bool causal : {false, true}) {
      SCOPED_TRACE(testing::Message() << "d " << d << (causal ? " causal" : " full"));
      Operands x({5, 2, 2, 200, 300, d, causal});
      x.set_lengths(lengths);
      Tensor mask = zeros({5, 1, 1, 300}, DType::u8);
      for (int64_t b = 0; b < 5; ++b)
        for (int j = 0; j < lengths[size_t(b)]; ++j) mask.set(b * 300 + j, 1);
      Tensors want = x.exact({.mask = mask}), got = x.results(flash_forward, true);
      expect_close(got, want);
      expect_close(x.results(flash_forward_mma, false), {want[0]});
      for (int i : {2, 3})  // keys beyond: exactly 0
        for (double v : slice(slice(got[size_t(i)], 0, 3, 4), 2, 128, 300).to_vector())
          ASSERT_EQ(v, 0);
      for (double v : slice(got[0], 0, 1, 2).to_vector()) ASSERT_EQ(v, 0);  // no key at all
    }
}

TEST(FlashLengths, GoWithDropout) {
  if (no_gpu()) GTEST_SKIP() << "no GPU";
  Operands x({2, 2, 1, 96, 96, 64, false});
  Generator g(13), same(13);
  x.drop(0.2, g);
  x.set_lengths({96, 50});
  Tensor mask = zeros({2, 1, 1, 96}, DType::u8);
  for (int64_t j = 0; j < 146; ++j) mask.set(j, 1);
  expect_close(x.results(flash_forward, true),
               x.exact({.mask = mask, .dropout = 0.2, .generator = &same}));
}

TEST(FlashLengths, OfAnotherTypeAreRefused) {
  if (no_gpu()) GTEST_SKIP() << "no GPU";
  Operands x({2, 1, 1, 64, 64, 64, false});
  x.in.lengths = ones({2}, DType::i64, kCuda);
  EXPECT_THROW(x.results(flash_forward, false), Error);
}

}  // namespace
}  // namespace gradus
