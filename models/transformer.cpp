#include "models/transformer.h"

namespace gradus {

Norm::Norm(const GptConfig& c)
    : weight({c.width}, nn::init::ones()), kind_(c.norm), epsilon_(c.epsilon) {
  if (kind_ == NormKind::layer && c.bias) bias = nn::Parameter({c.width}, nn::init::zeros());
}

Tensor Norm::operator()(const Tensor& x) const {
  return kind_ == NormKind::rms ? rms_norm(x, weight, epsilon_)
                                : layer_norm(x, weight, bias, epsilon_);
}

Block::Block(const GptConfig& c, int64_t layer)
    : norm1(c), attention(c, layer), norm2(c), mlp(c), drop(c.dropout) {}

Tensor Block::operator()(Tensor x, Generator* generator, KvCache* cache) const {
  x = x + drop(attention(norm1(x), generator, cache), generator);
  return x + drop(mlp(norm2(x)), generator);
}

}  // namespace gradus
