#pragma once
// What of a micro-batch and of the heads of attention one rank of a tensor-parallel group works on.
#include "ops/ops.h"
#include "parallel/tensor_parallel.h"

namespace gradus {

/// Which tokens of a micro-batch the activations hold: all of them, as (B, T, C); or, where tokens are cut
/// over the ranks, rows first … first + rows − 1 of (B·T, C).
struct TokenRows {
  int64_t length = 0;  // T where tokens are cut, else 0
  int64_t first = 0, rows = 0;

  TokenRows() = default;
  /// Those of this rank. Error, under sequence parallelism, where B T does not divide.
  TokenRows(const parallel::TensorParallel& tp, int64_t B, int64_t T);
  bool is_cut() const { return length > 0; }
  /// T, for activations x.
  int64_t length_of(const Tensor& x) const { return is_cut() ? length : x.size(1); }
  /// The rows of what each token has, y (B, T): (rows); y itself where all are here.
  Tensor of(const Tensor& y) const;
  /// The positions 0 … T − 1 of these rows, of B texts: (rows) of i32.
  Tensor positions(int64_t B, Device device) const;
};

/// The heads of attention that a rank has: `groups` of them, each of `per_group` that share keys and values.
/// With fewer groups than ranks a rank has a part of one group:
///
///   2 groups of 4 over 4 ranks     │ q₀ q₁ q₂ q₃ k₀ v₀ │ q₄ q₅ q₆ q₇ k₁ v₁ │
///                                    0     1     0, 1    2     3     2, 3
struct HeadShare {
  int64_t all = 0;    // heads of the model
  int64_t first = 0;  // the first of those here
  int64_t groups = 0, per_group = 0;
  int64_t all_groups = 0;     // of the model
  bool shares_group = false;  // with other ranks

  /// Error where neither the groups divide by the ranks nor the ranks by the groups.
  HeadShare(const parallel::TensorParallel& tp, int64_t heads, int64_t groups);
  int64_t heads() const { return groups * per_group; }
  /// From what the column layer of a rank gives, x (…, its rows of the matrix), the packed heads
  /// (B, T, groups, per_group + 2, d).
  Tensor packed(const parallel::TensorParallel& tp, const Tensor& x, int64_t T, int64_t d) const;
  /// The packed heads of qkv(x). The gradient of its bias is left to self_attention(), as options.bias,
  /// where the heads are its outputs as they are.
  Tensor packed(const parallel::ColumnLinear& qkv, const Tensor& x, int64_t T, int64_t d,
                SelfAttentionOptions& options) const;
};

}  // namespace gradus
