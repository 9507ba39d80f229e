#include "models/bert_block.h"

namespace gradus {

BertAttention::BertAttention(const BertConfig& c, const parallel::TensorParallel& tp)
    : qkv(c.width, 3 * c.width, tp),
      out(c.width, c.width, tp),
      drop(c.dropout),
      head_size_(c.head_size()),
      heads_(tp, c.heads, c.heads) {
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
  Tensor packed = heads_.packed(qkv, x, random.tokens.length_of(x), head_size_, options);
  return out(self_attention(packed, options));
}

BertBlock::BertBlock(const BertConfig& c, const parallel::TensorParallel& tp)
    : attention(c, tp),
      norm1(c.width, c.epsilon),
      up(c.width, c.inner_width(), tp),
      down(c.inner_width(), c.width, tp),
      norm2(c.width, c.epsilon),
      drop(c.dropout) {
  up.weight.init = down.weight.init = nn::init::normal(c.deviation);
  up.bias.init = down.bias.init = nn::init::zeros();
  norm1.weight.shard = norm1.bias.shard = norm2.weight.shard = norm2.bias.shard = tp.whole();
}

Tensor BertBlock::operator()(Tensor x, const Tensor& mask, const Randomness& random) const {
  const auto dropped = [&](const Tensor& y) {
    return drop(y, random.generator, random.elements(y));
  };
  x = norm1(x + dropped(attention(x, mask, random)));
  return norm2(x + dropped(down(gelu(up(x)))));
}

}  // namespace gradus
