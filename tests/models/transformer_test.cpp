#include "models/transformer.h"

#include <gtest/gtest.h>

#include "autograd/node.h"
#include "tests/devices.h"

namespace gradus {
namespace {

GptConfig config(NormKind norm, bool bias, Activation activation = Activation::gelu_tanh) {
  GptConfig c{.layers = 1, .width = 4, .heads = 2, .ffn = 3, .vocab = 5, .max_length = 4};
  c.norm = norm, c.bias = bias, c.activation = activation;
  return c;
}

template <class M>
void prepare(M& module) {
  module.cast(DType::f64);
  nn::initialize(module, 4);
}

void expect_near(const Tensor& y, const std::vector<double>& expected, double bound) {
  ASSERT_EQ(y.numel(), int64_t(expected.size()));
  for (int64_t i = 0; i < y.numel(); ++i) EXPECT_NEAR(y.at(i), expected[size_t(i)], bound) << i;
}

TEST(Transformer, NormsOfARowByHand) {
  Tensor x = tensor({1, 2, 4, -3}, {1, 4}, DType::f64);
  Norm layer(config(NormKind::layer, true)), bare(config(NormKind::layer, false));
  Norm rms(config(NormKind::rms, true));
  for (Norm* norm : {&layer, &bare, &rms}) prepare(*norm);
  copy_(layer.bias.detach(), tensor({0, 0.5, 0, -1}, {4}, DType::f64));
  copy_(rms.weight.detach(), tensor({1, 0.5, -1, 2}, {4}, DType::f64));
  double r = 0.392231969, q = 0.365148128;  // 1/√(6.5 + ε) with μ = 1; 1/√(7.5 + ε)
  expect_near(layer(x), {0, r + 0.5, 3 * r, -4 * r - 1}, 4e-9);
  expect_near(bare(x), {0, r, 3 * r, -4 * r}, 4e-9);
  expect_near(rms(x), {q, q, -4 * q, -6 * q}, 4e-9);
  EXPECT_FALSE(bare.bias || rms.bias);
}

TEST(Transformer, MlpsByTheirFormulas) {
  Generator g(1);
  Tensor x = normal({2, 3, 4}, g, 0, 1, DType::f64);
  Mlp plain(config(NormKind::layer, true)), gated(config(NormKind::rms, false, Activation::swiglu));
  prepare(plain), prepare(gated);
  Tensor h = linear(x, plain.up.weight, plain.up.bias);
  expect_near(plain(x),
              linear(gelu(h, GeluKind::tanh), plain.down.weight, plain.down.bias).to_vector(), 0);
  Tensor gate = linear(x, slice(gated.up.weight, 0, 0, 3)),
         up = linear(x, slice(gated.up.weight, 0, 3, 6));
  expect_near(gated(x), linear(silu(gate) * up, gated.down.weight).to_vector(), 1e-16);
}

// Both branches see a normalised input and are added to the stream: sums of three numbers below 20.
TEST(Transformer, BlockAddsItsBranches) {
  Generator g(1);
  Tensor x = normal({2, 3, 4}, g, 0, 5, DType::f64),
         branch = normal({2, 3, 4}, g, 0, 1, DType::f64);
  Tensor bias = normal({4}, g, 0, 1, DType::f64);
  for (NormKind norm : {NormKind::layer, NormKind::rms}) {
    Block block(config(norm, true), 0);
    prepare(block);
    for (bool pending : {false, true}) {
      Residual stream{.x = x};
      if (pending) stream.branch = branch, stream.bias = bias;
      Tensor y = pending ? x + (branch + bias) : x;
      y = y + block.attention(block.norm1(y), nullptr);
      y = y + block.mlp(block.norm2(y));
      expect_near(block(stream, nullptr).sum(), y.to_vector(), 1e-14);
    }
  }
}

// The mask of a branch is drawn where the branch is made, and is that of dropout().
TEST(Transformer, AStreamDropsPartOfItsBranch) {
  Generator g(1), masks(9), same(9);
  Tensor x = normal({2, 3, 4}, g, 0, 1, DType::f64), y = normal({2, 3, 4}, g, 0, 1, DType::f64);
  Tensor bias = normal({4}, g, 0, 1, DType::f64);
  Residual stream{.x = x};
  stream.add(y, bias, nn::Dropout(0.4), &masks);
  EXPECT_EQ(masks.state().streams, 1u);
  EXPECT_THROW(stream.add(y, bias, nn::Dropout(0.4), &masks), Error);  // one is still missing
  Tensor expected = x + dropout(y + bias, 0.4, same);
  expect_near(stream.sum(), expected.to_vector(), 0);
  Norm norm(config(NormKind::layer, true));
  prepare(norm);
  expect_near(norm(stream), norm(expected).to_vector(), 1e-14);
  expect_near(stream.sum(), expected.to_vector(), 1e-15);
  EXPECT_FALSE(stream.branch);
}

}  // namespace
}  // namespace gradus
