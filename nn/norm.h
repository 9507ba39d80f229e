#pragma once
// Normalisation of the last dimension of x (…, C).
#include "nn/init.h"
#include "ops/ops.h"

namespace gradus::nn {

/// y = γ (x − μ)/√(σ² + ε) + β
struct LayerNorm final : Module {
  Parameter weight;  // γ (C)
  Parameter bias;    // β (C)
  double epsilon;

  explicit LayerNorm(int64_t width, double epsilon = 1e-5)
      : weight({width}, init::ones()), bias({width}, init::zeros()), epsilon(epsilon) {}
  Tensor operator()(const Tensor& x) const { return layer_norm(x, weight, bias, epsilon); }
  void fields(Fields& f) override { f("weight", weight)("bias", bias); }
};

/// y = γ x/√(⟨x²⟩ + ε)
struct RmsNorm final : Module {
  Parameter weight;  // γ (C)
  double epsilon;

  explicit RmsNorm(int64_t width, double epsilon = 1e-5)
      : weight({width}, init::ones()), epsilon(epsilon) {}
  Tensor operator()(const Tensor& x) const { return rms_norm(x, weight, epsilon); }
  void fields(Fields& f) override { f("weight", weight); }
};

}  // namespace gradus::nn
