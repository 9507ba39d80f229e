#include "models/transformer.h"

namespace gradus {

void Residual::add(Tensor y, const Tensor& y_bias, const nn::Dropout& drop,
                   const Randomness& random) {
  check(!branch, "a branch is added to a residual stream that another one is still missing from");
  branch = std::move(y);
  bias = y_bias;
  dropout = drop.drops() ? drop.p : 0;
  if (!drop.drops()) return;
  mask = drop.next_mask(random.generator);
  first_element = random.elements(branch).first;
}

Tensor Residual::sum() const {
  if (!branch) return x;
  Tensor y = bias ? branch + bias : branch;
  return x + gradus::dropout(y, dropout, mask, {.first = first_element});
}

Norm::Norm(const GptConfig& c, const parallel::TensorParallel& tp)
    : weight({c.width}, nn::init::ones(), tp.whole()), kind_(c.norm), epsilon_(c.epsilon) {
  if (kind_ != NormKind::layer || !c.bias) return;
  bias = nn::Parameter({c.width}, nn::init::zeros(), tp.whole());
}

Tensor Norm::operator()(const Tensor& x) const {
  return kind_ == NormKind::rms ? rms_norm(x, weight, epsilon_)
                                : layer_norm(x, weight, bias, epsilon_);
}

Tensor Norm::operator()(Residual& s) const {
  if (!s.branch) return (*this)(s.x);
  const AddNormOptions options{
      .epsilon = epsilon_, .dropout = s.dropout, .mask = s.mask, .first_element = s.first_element};
  AddNorm both = kind_ == NormKind::rms
                     ? add_rms_norm(s.x, s.branch, s.bias, weight, options)
                     : add_layer_norm(s.x, s.branch, s.bias, weight, bias, options);
  s = {.x = both.sum};
  return both.normal;
}

Block::Block(const GptConfig& c, int64_t layer, const parallel::TensorParallel& tp)
    : norm1(c, tp), attention(c, layer, tp), norm2(c, tp), mlp(c, tp), drop(c.dropout) {}

Residual Block::operator()(Residual s, const Randomness& random, KvCache* cache) const {
  Tensor n = norm1(s);
  s.add(attention.without_bias(n, random, cache), attention.out.bias, drop, random);
  n = norm2(s);
  s.add(mlp.without_bias(n), mlp.down.bias, drop, random);
  return s;
}

}  // namespace gradus
