#include "models/bert_block.h"

namespace gradus {

BertAttention::BertAttention(const BertConfig& c)
    : qkv(c.width, 3 * c.width),
      out(c.width, c.width),
      drop(c.dropout),
      heads_(c.heads),
      head_size_(c.head_size()) {
  qkv.weight.init = out.weight.init = nn::init::normal(c.deviation);
  qkv.bias.init = out.bias.init = nn::init::zeros();
}

Tensor BertAttention::operator()(const Tensor& x, const Tensor& mask, Generator* generator) const {
  int64_t B = x.size(0), T = x.size(1);
  Tensor packed = permute(reshape(qkv(x), {B, T, heads_, 3, head_size_}), {3, 0, 2, 1, 4});
  Tensor q = select(packed, 0, 0), k = select(packed, 0, 1), v = select(packed, 0, 2);
  check(!drop.drops() || generator, "attention with dropout ", drop.p,
        " in training needs a generator: pass one, or call eval() of the module");
  Tensor y = attention(  // (B, H, T, d)
      q, k, v, {.mask = mask, .dropout = drop.drops() ? drop.p : 0, .generator = generator});
  return out(reshape(transpose(y, 1, 2), {B, T, heads_ * head_size_}));
}

BertBlock::BertBlock(const BertConfig& c)
    : attention(c),
      norm1(c.width, c.epsilon),
      up(c.width, c.inner_width()),
      down(c.inner_width(), c.width),
      norm2(c.width, c.epsilon),
      drop(c.dropout) {
  up.weight.init = down.weight.init = nn::init::normal(c.deviation);
  up.bias.init = down.bias.init = nn::init::zeros();
}

Tensor BertBlock::operator()(Tensor x, const Tensor& mask, Generator* generator) const {
  x = norm1(x + drop(attention(x, mask, generator), generator));
  return norm2(x + drop(down(gelu(up(x))), generator));
}

}  // namespace gradus
