#pragma once
// A transformer block with the norms inside the branches, so that a gradient reaches every layer
// unchanged along the sum [Xiong et al. 2020]:
//
//   x ─┬──▶ norm ─▶ attention ─▶ dropout ──▶ + ─┬──▶ norm ─▶ MLP ─▶ dropout ──▶ + ─▶
//      └─────────────────────────────────────┘ └──────────────────────────────┘
#include "models/attention.h"
#include "models/mlp.h"

namespace gradus {

/// Layer norm or RMS norm over the last dimension, as the configuration says.
struct Norm final : nn::Module {
  nn::Parameter weight;  // γ (C)
  nn::Parameter bias;    // β (C), or absent

  explicit Norm(const GptConfig& config);
  Tensor operator()(const Tensor& x) const;
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

  Block(const GptConfig& config, int64_t layer);
  /// x (B, T, C) → (B, T, C).
  Tensor operator()(Tensor x, Generator* generator, KvCache* cache = nullptr) const;
  void fields(nn::Fields& f) override {
    f("norm1", norm1)("attention", attention)("norm2", norm2)("mlp", mlp)("drop", drop);
  }
};

}  // namespace gradus
