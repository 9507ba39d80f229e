#pragma once
#include "nn/init.h"
#include "ops/ops.h"

namespace gradus::nn {

/// y = x Wᵀ + b,   x (…, in) → y (…, out).   W and b start in U(−1/√in, 1/√in), of variance 1/(3 in).
struct Linear final : Module {
  Parameter weight;  // (out, in)
  Parameter bias;    // (out), or absent

  Linear(int64_t in, int64_t out, bool with_bias = true)
      : weight({out, in}, init::kaiming_uniform(in, 0.5773502691896258)) {
    if (with_bias) bias = Parameter({out}, weight.init);
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }
  void fields(Fields& f) override { f("weight", weight)("bias", bias); }
};

}  // namespace gradus::nn
