#include "models/transformer.h"

namespace gradus {

void Residual::add(Tensor y, const Tensor& y_bias, const nn::Dropout& drop, Generator* generator) {
  check(!branch, "a branch is added to a residual stream that another one is still missing from");
  branch = std::move(y);
  bias = y_bias;
  dropout = drop.drops() ? drop.p : 0;
  if (drop.drops()) mask = drop.next_mask(generator);
}

Tensor Residual::sum() const {
  if (!branch) return x;
  Tensor y = bias ? branch + bias : branch;
  Generator masks({mask.seed, mask.stream});
  return x + gradus::dropout(y, dropout, masks);
}

Norm::Norm(const GptConfig& c)
    : weight({c.width}, nn::init::ones()), kind_(c.norm), epsilon_(c.epsilon) {
  if (kind_ == NormKind::layer && c.bias) bias = nn::Parameter({c.width}, nn::init::zeros());
}

Tensor Norm::operator()(const Tensor& x) const {
  return kind_ == NormKind::rms ? rms_norm(x, weight, epsilon_)
                                : layer_norm(x, weight, bias, epsilon_);
}

Tensor Norm::operator()(Residual& s) const {
  if (!s.branch) return (*this)(s.x);
  const AddNormOptions options{.epsilon = epsilon_, .dropout = s.dropout, .mask = s.mask};
  AddNorm both = kind_ == NormKind::rms
                     ? add_rms_norm(s.x, s.branch, s.bias, weight, options)
                     : add_layer_norm(s.x, s.branch, s.bias, weight, bias, options);
  s = {.x = both.sum};
  return both.normal;
}

Block::Block(const GptConfig& c, int64_t layer)
    : norm1(c), attention(c, layer), norm2(c), mlp(c), drop(c.dropout) {}

Residual Block::operator()(Residual s, Generator* generator, KvCache* cache) const {
  Tensor n = norm1(s);
  s.add(attention.without_bias(n, generator, cache), attention.out.bias, drop, generator);
  n = norm2(s);
  s.add(mlp.without_bias(n), mlp.down.bias, drop, generator);
  return s;
}

}  // namespace gradus
