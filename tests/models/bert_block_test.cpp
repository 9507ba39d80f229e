// A block of BERT against its formula, head by head.
#include "models/bert_block.h"

#include <gtest/gtest.h>

#include "autograd/accumulate.h"

namespace gradus {
namespace {

BertConfig tiny() {
  return {
      .layers = 1, .width = 6, .heads = 2, .ffn = 10, .vocab = 11, .max_length = 4, .dropout = 0};
}

Tensor random(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return normal(shape, g, 0, 1, DType::f64);
}

/// Every parameter drawn anew, so that no bias is 0 and no γ is 1.
void draw(nn::Module& module) {
  uint64_t seed = 10;
  for (nn::Parameter& p : module.parameters()) write_values(p.detach(), random(p.shape(), seed++));
}

/// Softmax over the first `keys` entries of q Kᵀ/√d, times V, for one head: all of (T, d).
Tensor head(const Tensor& q, const Tensor& k, const Tensor& v, int64_t keys) {
  Tensor seen = slice(k, 0, 0, keys),
         scores = matmul(q, transpose(seen, 0, 1)) / std::sqrt(double(q.size(1)));
  return matmul(softmax(scores, 1), slice(v, 0, 0, keys));
}

TEST(BertAttention, IsEachHeadByItself) {
  BertConfig c = tiny();
  BertAttention a(c);
  a.cast(DType::f64);
  draw(a);
  const int64_t T = 4, d = c.head_size(), keys = 3;
  Tensor x = random({1, T, c.width}, 1), mask = tensor({1, 1, 1, 0}, {1, 1, 1, T}, DType::u8);
  Tensor rows = linear(select(x, 0, 0), a.qkv.weight, a.qkv.bias);  // (T, heads · 3 d)
  Tensors outputs;
  for (int64_t h = 0; h < c.heads; ++h) {
    auto part = [&](int64_t i) { return slice(rows, 1, (3 * h + i) * d, (3 * h + i + 1) * d); };
    outputs.push_back(head(part(0), part(1), part(2), keys));
  }
  std::vector<double> want = linear(cat(outputs, 1), a.out.weight, a.out.bias).to_vector();
  std::vector<double> got = a(x, mask, nullptr).to_vector();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-13);
}

TEST(BertBlock, NormalisesEachSum) {
  BertConfig c = tiny();
  BertBlock b(c);
  b.cast(DType::f64);
  draw(b);
  Tensor x = random({2, 3, c.width}, 2);
  Tensor h = layer_norm(x + b.attention(x, {}, nullptr), b.norm1.weight, b.norm1.bias, c.epsilon);
  Tensor inner = gelu(linear(h, b.up.weight, b.up.bias));
  Tensor y = layer_norm(h + linear(inner, b.down.weight, b.down.bias), b.norm2.weight, b.norm2.bias,
                        c.epsilon);
  std::vector<double> want = y.to_vector(), got = b(x, {}, nullptr).to_vector();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-13);
}

}  // namespace
}  // namespace gradus
