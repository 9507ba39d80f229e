#pragma once
#include "models/config.h"
#include "nn/linear.h"

namespace gradus {

/// The part of a block that works on each token by itself:
///   GELU     down(gelu(up x))            up: C → inner width
///   SwiGLU   down(silu(g) ⊙ u)           (g, u) = up x:  C → twice the inner width, gate rows first
struct Mlp final : nn::Module {
  nn::Linear up, down;

  explicit Mlp(const GptConfig& config);
  Tensor operator()(const Tensor& x) const;  // (B, T, C) → (B, T, C)
  void fields(nn::Fields& f) override { f("up", up)("down", down); }

 private:
  Activation activation_;
};

}  // namespace gradus
