// Self-attention of packed heads against split, rope, attention and merge in f64.
#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "core/allocator.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

struct Sizes {
  int64_t B, T, G, n, d;
};

Tensor random(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return normal(shape, g, 0, 1, DType::f64);
}

Tensor formula(const Tensor& packed, const SelfAttentionOptions& o) {
  UnpackedHeads h = unpack_heads(packed);
  if (o.rope) h.q = rope(h.q, *o.rope), h.k = rope(h.k, *o.rope);
  return merge_heads(attention(h.q, h.k, h.v, o));
}

/// ‖a − b‖ / ‖b‖
double distance(const Tensor& a, const Tensor& b) {
  std::vector<double> x = cast(to(a, kCpu), DType::f64).to_vector(), y = b.to_vector();
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) error += (x[i] - y[i]) * (x[i] - y[i]), norm += y[i] * y[i];
  EXPECT_EQ(x.size(), y.size());
  return std::sqrt(error / norm);
}

void compare(Sizes z, SelfAttentionOptions options, DType type, double tolerance) {
  for (Device device : test_devices()) {
    Shape shape{z.B, z.T, z.G, z.n + 2, z.d};
    // The reference starts from the rounded numbers.
    Tensor x = cast(cast(random(shape, 1), type), DType::f64).requires_grad_();
    Tensor dy = cast(cast(random({z.B, z.T, z.G * z.n * z.d}, 2), type), DType::f64);
    Tensor want = formula(x, options);
    want.backward(dy);
    Tensor want_bias = sum(x.grad(), {0, 1});

    PoisonAllocations poison;
    Tensor mine = to(cast(x.detach(), type), device).requires_grad_();
    SelfAttentionOptions own = options;
    own.overwrite = true;
    own.bias = zeros({z.G * (z.n + 2) * z.d}, type, device).requires_grad_();
    Tensor y = self_attention(mul(mine, full({}, 1, type, device)), own);
    y.backward(to(cast(dy, type), device));
    EXPECT_LT(distance(y.detach(), want.detach()), tolerance) << device.is_cuda();
    EXPECT_LT(distance(mine.grad(), x.grad()), 3 * tolerance) << device.is_cuda();
    EXPECT_LT(distance(own.bias.grad(), reshape(want_bias, {-1})), 3 * tolerance)
        << device.is_cuda();
  }
}

// Sums of d or T products of numbers rounded to ε: the relative error of the whole stays near ε; it is
// given four of them, and the gradient, which has a rounded P, dS and O behind it, three times that.
TEST(SelfAttention, EqualsItsParts) {
  const double bf16_epsilon = 1.0 / 128, f16_epsilon = 1.0 / 1024;
  for (bool causal : {false, true})
    for (bool turned : {false, true}) {
      SelfAttentionOptions o{{.causal = causal}};
      if (turned) o.rope = RopeOptions{.base = 500, .first_position = 2};
      compare({2, 70, 3, 1, 64}, o, DType::bf16, 4 * bf16_epsilon);
      compare({2, 300, 2, 1, 64}, o, DType::f16, 4 * f16_epsilon);
      compare({3, 200, 2, 1, 128}, o, DType::bf16, 4 * bf16_epsilon);
      compare({1, 33, 2, 4, 64}, o, DType::f16, 4 * f16_epsilon);
      compare({1, 130, 2, 2, 128}, o, DType::bf16, 4 * bf16_epsilon);
      compare({2, 5, 2, 3, 6}, o, DType::f32, 1e-5);
    }
}

TEST(SelfAttention, LeavesItsInputAloneUnlessItMayOverwriteIt) {
  for (Device device : test_devices()) {
    Tensor x = to(cast(random({1, 9, 2, 3, 64}, 3), DType::bf16), device);
    std::vector<double> before = x.to_vector();
    self_attention(x, {{.causal = true}, RopeOptions{}});
    EXPECT_EQ(x.to_vector(), before);
  }
}

// Two micro-batches: of a main gradient the first backward writes what is there, the second adds. The bias is
// used a second time, outside of attention. Tolerance: see EqualsItsParts.
TEST(SelfAttention, TheGradientOfItsBiasAddsToAMainGradient) {
  const int64_t B = 2, T = 70, d = 64, columns = 3 * d;
  for (Device device : test_devices())
    for (DType type : {DType::f32, DType::bf16, DType::f16})
      for (bool turned : {false, true}) {
        SelfAttentionOptions o{{.causal = true}};
        if (turned) o.rope = RopeOptions{};
        Tensor bias = zeros({columns}, type, device).requires_grad_();
        bias.set_main_grad(full({columns}, NAN, DType::f32, device));
        Tensor want = zeros({columns}, DType::f64);
        for (uint64_t batch : {1, 2}) {
          const auto rounded = [&](const Shape& shape, uint64_t seed) {
            return cast(cast(random(shape, seed * batch), type), DType::f64);
          };
          Tensor packed = rounded({B, T, 1, 3, d}, 3), dy = rounded({B, T, d}, 5);
          Tensor besides = rounded({columns}, 7);
          SelfAttentionOptions own = o;
          own.bias = bias;
          self_attention(to(cast(packed, type), device), own).backward(to(cast(dy, type), device));
          (bias * 1).backward(to(cast(besides, type), device));

          packed.requires_grad_();
          formula(packed, o).backward(dy);
          want = want + reshape(sum(packed.grad(), {0, 1}), {columns}) + besides;
        }
        EXPECT_LT(distance(bias.grad(), want), 24 * roundoff(type)) << device << " " << type;
      }
}

TEST(SelfAttention, OfNoTokensIsEmpty) {
  for (Device device : test_devices())
    for (DType type : {DType::f32, DType::bf16})
      for (Shape shape : {Shape{0, 3, 2, 3, 64}, Shape{2, 0, 2, 3, 64}}) {
        Tensor x = zeros(shape, type, device).requires_grad_();
        Tensor bias = zeros({384}, type, device).requires_grad_();
        SelfAttentionOptions o;
        o.bias = bias;
        Tensor y = self_attention(x, o);
        ASSERT_EQ(y.shape(), (Shape{shape[0], shape[1], 128}));
        y.backward(zeros(y.shape(), type, device));
        EXPECT_EQ(x.grad().shape(), shape);
        EXPECT_EQ(bias.grad().to_vector(), std::vector<double>(384, 0));
      }
}

TEST(SelfAttention, WrongUseSaysWhatWasExpected) {
  EXPECT_THROW(self_attention(Tensor()), Error);
  EXPECT_THROW(self_attention(zeros({2, 3, 4, 5})), Error);
  EXPECT_THROW(self_attention(zeros({2, 3, 1, 2, 4})), Error);
  SelfAttentionOptions o;
  o.bias = zeros({4});
  EXPECT_THROW(self_attention(zeros({2, 3, 1, 3, 4}), o), Error);
  EXPECT_THROW(merge_heads(zeros({2, 3, 4})), Error);
}

}  // namespace
}  // namespace gradus
