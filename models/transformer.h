#pragma once
// A transformer block with the norms inside the branches, so that a gradient reaches every layer
// unchanged along the sum [Xiong et al. 2020]:
//
//   x ─┬──▶ norm ─▶ attention ─▶ dropout ──▶ + ─┬──▶ norm ─▶ MLP ─▶ dropout ──▶ + ─▶
//      └─────────────────────────────────────┘ └──────────────────────────────┘
//
// Each sum is followed by a norm, the last one by that of the next block, and both are memory-bound: one
// op makes them (ops/add_norm.cu). So a block hands its last branch on instead of adding it:
//
//   x, branch ─▶ add, norm ─▶ attention ─▶ add, norm ─▶ MLP ─▶ x, branch
#include "models/attention.h"
#include "models/mlp.h"

namespace gradus {

/// The residual stream with a branch that is still to be added: x + drop(branch + bias).
struct Residual {
  Tensor x;         // (B, T, C), or where tokens are cut rows of (B·T, C)
  Tensor branch{};  // of the same shape, or (T, C) for all sequences; undefined if x is all of it
  Tensor bias{};    // (C) of the branch's last linear layer, or undefined
  double dropout = 0;
  Philox mask{};
  uint64_t first_element = 0;  // of the mask

  /// Hands on `y`, which lacks its bias. x must be all of it.
  void add(Tensor y, const Tensor& y_bias, const nn::Dropout& drop, const Randomness& random);
  /// The sum, by itself.
  Tensor sum() const;
};

/// Layer norm or RMS norm over the last dimension, as the configuration says.
struct Norm final : nn::Module {
  nn::Parameter weight;  // γ (C)
  nn::Parameter bias;    // β (C), or absent

  explicit Norm(const GptConfig& config, const parallel::TensorParallel& tp = {});
  Tensor operator()(const Tensor& x) const;
  /// Adds the branch to x, and returns the norm of the sum.
  Tensor operator()(Residual& stream) const;
  void fields(nn::Fields& f) override { f("weight", weight)("bias", bias); }

 private:
  NormKind kind_;
  double epsilon_;
};

struct Block final : nn::Module {
  Norm norm1;
  Attention attention;
  Norm norm2;
  Mlp mlp;
  nn::Dropout drop;

  Block(const GptConfig& config, int64_t layer, const parallel::TensorParallel& tp = {});
  Residual operator()(Residual stream, const Randomness& random, KvCache* cache = nullptr) const;
  void fields(nn::Fields& f) override {
    f("norm1", norm1)("attention", attention)("norm2", norm2)("mlp", mlp)("drop", drop);
  }
};

}  // namespace gradus
