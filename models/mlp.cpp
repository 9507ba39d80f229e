#include "models/mlp.h"

namespace gradus {

Mlp::Mlp(const GptConfig& c)
    : up(c.width, (c.activation == Activation::swiglu ? 2 : 1) * c.inner_width(), c.bias),
      down(c.inner_width(), c.width, c.bias),
      activation_(c.activation) {
  up.weight.init = nn::init::normal(c.deviation);
  down.weight.init = nn::init::normal(c.residual_deviation());
  up.bias.init = down.bias.init = nn::init::zeros();
}

Tensor Mlp::operator()(const Tensor& x) const {
  Tensor h = up(x);
  return down(activation_ == Activation::swiglu ? swiglu(h) : gelu(h, GeluKind::tanh));
}

}  // namespace gradus
