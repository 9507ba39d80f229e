#pragma once
// Causal self-attention with several heads.
//
// One matrix yields queries, keys and values. Its rows are ordered by group, where a group is one head
// of keys and values with the query heads that read it, so that a cut between groups gives each rank
// whole groups:
//
//   rows   │ q₀ q₁ k₀ v₀ │ q₂ q₃ k₁ v₁ │     4 query heads in 2 groups
#include "models/kv_cache.h"
#include "models/places.h"
#include "nn/dropout.h"

namespace gradus {

struct Attention final : nn::Module {
  parallel::ColumnLinear qkv;  // C → groups · (heads per group + 2) · d
  parallel::RowLinear out;     // C → C
  nn::Dropout drop;

  Attention(const GptConfig& config, int64_t layer, const parallel::TensorParallel& tp = {});
  /// x (B, T, C), or rows of it, → the same. With a cache, x are the tokens that follow those in it.
  Tensor operator()(const Tensor& x, const Randomness& random, KvCache* cache = nullptr) const {
    return out(attend(x, random, cache));
  }
  /// The same less out.bias, for a caller that adds it on the way.
  Tensor without_bias(const Tensor& x, const Randomness& random, KvCache* cache = nullptr) const {
    return out.without_bias(attend(x, random, cache));
  }
  void fields(nn::Fields& f) override { f("qkv", qkv)("out", out)("drop", drop); }

 private:
  /// What the heads here found, side by side (B, T, their number · d).
  Tensor attend(const Tensor& x, const Randomness& random, KvCache* cache) const;
  Tensor attend_with(KvCache& cache, const Tensor& packed,
                     const SelfAttentionOptions& options) const;

  int64_t layer_, head_size_;
  HeadShare heads_;
  bool rotate_;
  double rope_base_;
};

}  // namespace gradus
