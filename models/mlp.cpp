#include "models/mlp.h"

#include "ops/gelu_mlp.h"
#include "ops/ops.h"

namespace gradus {

// The rows of SwiGLU's matrix are gate over up: a rank has the same rows of both, so it is cut in two pieces.
static int pieces(const GptConfig& c) { return c.activation == Activation::swiglu ? 2 : 1; }

Mlp::Mlp(const GptConfig& c, const parallel::TensorParallel& tp)
    : up(c.width, pieces(c) * c.inner_width(), tp, {.bias = c.bias, .pieces = pieces(c)}),
      down(c.inner_width(), c.width, tp, {.bias = c.bias}),
      activation_(c.activation) {
  up.weight.init = nn::init::normal(c.deviation);
  down.weight.init = nn::init::normal(c.residual_deviation());
  up.bias.init = down.bias.init = nn::init::zeros();
}

Tensor Mlp::apply_with(const Tensor& down_bias, const Tensor& x) const {
  const parallel::TensorParallel& tp = up.tp;
  if (activation_ == Activation::swiglu)
    return row_linear(tp, swiglu(up(x)), down.weight, down_bias);
  if (!tp.is_cut()) return gelu_mlp(x, up.weight, up.bias, down.weight, down_bias);
  Tensor y = column_gelu_row(tp, x, up.weight, up.bias, down.weight);
  return down_bias ? y + down_bias : y;
}

}  // namespace gradus
