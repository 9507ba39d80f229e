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

Tensor BertAttention::operator()(const Tensor& x, const Tensor& mask,
                                 const Randomness& random) const {
  check(!drop.drops() || random.generator, "attention with dropout ", drop.p,
        " in training needs a generator: pass one, or call eval() of the module");
  SelfAttentionOptions options{{.mask = mask,
                                .dropout = drop.drops() ? drop.p : 0,
                                .generator = random.generator,
                                .head_rows = random.head_rows(heads_)}};
  options.overwrite = true;
  return out(
      self_attention(reshape(qkv(x), {x.size(0), x.size(1), heads_, 3, head_size_}), options));
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

Tensor BertBlock::operator()(Tensor x, const Tensor& mask, const Randomness& random) const {
  const auto dropped = [&](const Tensor& y) {
    return drop(y, random.generator, random.elements(y));
  };
  x = norm1(x + dropped(attention(x, mask, random)));
  return norm2(x + dropped(down(gelu(up(x)))));
}

}  // namespace gradus
