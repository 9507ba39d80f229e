#pragma once
// A block of the encoder, with the norms on the sum as in the original [Devlin et al. 2019]:
//
//   x ─┬─▶ attention ─▶ dropout ─▶ + ─▶ norm ─┬─▶ MLP ─▶ dropout ─▶ + ─▶ norm ─▶
//      └───────────────────────────┘          └─────────────────────┘
//
// Every gradient passes every norm, so the rate of learning has to warm up; in exchange each block
// hands on vectors of one size [Xiong et al. 2020].
#include "models/bert_config.h"
#include "models/places.h"
#include "nn/dropout.h"
#include "nn/norm.h"

namespace gradus {

/// Attention from each token to all tokens that are not padding. The rows of `qkv` are ordered by
/// head, as in models/attention.h, so that a cut between heads gives each rank whole heads:
///
///   rows   │ q₀ k₀ v₀ │ q₁ k₁ v₁ │ …     each of head_size rows
struct BertAttention final : nn::Module {
  parallel::ColumnLinear qkv;  // C → 3C
  parallel::RowLinear out;     // C → C
  nn::Dropout drop;

  explicit BertAttention(const BertConfig& config, const parallel::TensorParallel& tp = {});
  /// x (B, T, C), or rows of it, → the same. `mask` (B, 1, 1, T) of u8: 0 at padding; undefined: none.
  Tensor operator()(const Tensor& x, const Tensor& mask, const Randomness& random) const;
  void fields(nn::Fields& f) override { f("qkv", qkv)("out", out)("drop", drop); }

 private:
  int64_t head_size_;
  HeadShare heads_;
};

struct BertBlock final : nn::Module {
  BertAttention attention;
  nn::LayerNorm norm1;
  parallel::ColumnLinear up;  // C → inner width → C, with GELU (erf) in between
  parallel::RowLinear down;
  nn::LayerNorm norm2;
  nn::Dropout drop;

  explicit BertBlock(const BertConfig& config, const parallel::TensorParallel& tp = {});
  /// x (B, T, C), or rows of it, → the same.
  Tensor operator()(Tensor x, const Tensor& mask, const Randomness& random) const;
  void fields(nn::Fields& f) override {
    f("attention", attention)("norm1", norm1)("up", up)("down", down)("norm2", norm2)("drop", drop);
  }
};

}  // namespace gradus
