#include "models/shares.h"

#include "parallel/collectives.h"

namespace gradus {

TokenRows::TokenRows(const parallel::TensorParallel& tp, int64_t B, int64_t T) {
  if (!tp.splits_tokens()) return;
  tp.check_tokens(B * T);
  length = T, rows = B * T / tp.ranks(), first = tp.rank() * rows;
}

Tensor TokenRows::of(const Tensor& y) const {
  return is_cut() ? slice(reshape(y, {-1}), 0, first, first + rows) : y;
}

Tensor TokenRows::positions(int64_t B, Device device) const {
  return of(expand(reshape(arange(length, DType::i32, device), {1, length}), {B, length}));
}

HeadShare::HeadShare(const parallel::TensorParallel& tp, int64_t heads, int64_t groups)
    : all(heads), all_groups(groups), shares_group(groups % tp.ranks() != 0) {
  check(!shares_group || tp.ranks() % groups == 0, "heads of keys and values, ", groups,
        ", cannot be cut over ", tp.ranks(),
        " ranks: one of the numbers must be a multiple of the other");
  const int64_t own = tp.part(heads, "the heads of attention");
  first = tp.rank() * own;
  this->groups = shares_group ? 1 : groups / tp.ranks();
  per_group = own / this->groups;
}

// A cut in equal parts of rows does not respect groups that ranks share, so each rank takes all columns
// and picks its own. Its gradient of shared keys and values is one of several: they are summed.
Tensor HeadShare::packed(const parallel::TensorParallel& tp, const Tensor& x, int64_t T,
                         int64_t d) const {
  if (!shares_group) return reshape(x, {-1, T, groups, per_group + 2, d});
  const int64_t of_group = all / all_groups, group = first / of_group, query = first % of_group;
  Tensor every = gather_from(tp.group, x, -1, parallel::Consumer::split);
  Tensor own = slice(reshape(every, {-1, T, all_groups, of_group + 2, d}), 2, group, group + 1);
  return cat({slice(own, 3, query, query + per_group), slice(own, 3, of_group, of_group + 2)}, 3);
}

Tensor HeadShare::packed(const parallel::ColumnLinear& qkv, const Tensor& x, int64_t T, int64_t d,
                         SelfAttentionOptions& options) const {
  if (!qkv.bias || shares_group) return packed(qkv.tp, qkv(x), T, d);
  options.bias = qkv.bias;
  return packed(qkv.tp, column_linear(qkv.tp, x, qkv.weight, qkv.bias.detach()), T, d);
}

}  // namespace gradus
