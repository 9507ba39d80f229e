#include "models/mlp.h"

#include "ops/gelu_mlp.h"

namespace gradus {

Mlp::Mlp(const GptConfig& c)
    : up(c.width, (c.activation == Activation::swiglu ? 2 : 1) * c.inner_width(), c.bias),
      down(c.inner_width(), c.width, c.bias),
      activation_(c.activation) {
  up.weight.init = nn::init::normal(c.deviation);
  down.weight.init = nn::init::normal(c.residual_deviation());
  up.bias.init = down.bias.init = nn::init::zeros();
}

Tensor Mlp::apply_with(const Tensor& down_bias, const Tensor& x) const {
  if (activation_ == Activation::gelu_tanh)
    return gelu_mlp(x, up.weight, up.bias, down.weight, down_bias);
  return linear(swiglu(up(x)), down.weight, down_bias);
}

}  // namespace gradus
