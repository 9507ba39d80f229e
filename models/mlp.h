#pragma once
#include "models/config.h"
#include "parallel/tensor_parallel.h"

namespace gradus {

/// The part of a block that works on each token by itself:
///   GELU     down(gelu(up x))            up: C → inner width
///   SwiGLU   down(silu(g) ⊙ u)           (g, u) = up x:  C → twice the inner width, gate rows first
struct Mlp final : nn::Module {
  parallel::ColumnLinear up;
  parallel::RowLinear down;

  explicit Mlp(const GptConfig& config, const parallel::TensorParallel& tp = {});
  /// (B, T, C), or rows of it, → the same.
  Tensor operator()(const Tensor& x) const { return apply_with(down.bias, x); }
  /// The same less down.bias, for a caller that adds it on the way (it may be undefined).
  Tensor without_bias(const Tensor& x) const { return apply_with({}, x); }
  void fields(nn::Fields& f) override { f("up", up)("down", down); }

 private:
  Tensor apply_with(const Tensor& down_bias, const Tensor& x) const;

  Activation activation_;
};

}  // namespace gradus
