#pragma once
// Which dimensions a reduction runs over, and the way through memory that follows from them.
#include "autograd/tensor.h"
#include "core/elementwise.h"
#include "ops/ops.h"

namespace gradus {

/// A set of dimensions: bit d is dimension d.
using DimSet = uint32_t;

/// x is reduced over `dims` to `kept` (reduced sizes are 1), which is shown as `result` (they may be
/// left out).
struct Over {
  DimSet dims = 0;
  Shape x{}, kept{}, result{};

  /// Elements of x in one of the result.
  int64_t count() const;
  /// y, of the shape of the result, repeated along what was reduced: the shape of x. Recorded.
  Tensor spread(const Tensor& y) const;
};

/// Checks `dims` (none: all) on behalf of `op`: in range, each at most once.
Over over(const char* op, const Tensor& x, const Dims& dims, bool keep_dims);
/// The same for a reduction that has no value for no elements.
Over over_some(const char* op, const Tensor& x, const Dims& dims, bool keep_dims);

/// What a reduction reads: `kept` steps from output to output, `reduced` over what is folded into one.
struct ReduceWalk {
  Walk<1> kept, reduced;

  /// Neighbouring outputs lie closer together than the elements of one: fold whole rows.
  bool by_columns() const {
    if (kept.rank == 0 || reduced.rank == 0 || kept_step() == 0) return false;
    return std::abs(kept_step()) < std::abs(reduced_step());
  }
  GRADUS_HD int64_t columns() const { return kept.sizes[kept.rank - 1]; }
  GRADUS_HD int64_t kept_step() const { return kept.strides[0][kept.rank - 1]; }
  GRADUS_HD int64_t reduced_step() const { return reduced.strides[0][reduced.rank - 1]; }
};

/// Where a reduction puts its results: y_o ← v, or y_o ← y_o + v.
template <class Y>
struct Results {
  Y* y = nullptr;
  bool add = false;
  template <class V>
  GRADUS_HD void put(int64_t o, V v) const {
    y[o] = Y(add ? V(y[o]) + v : v);
  }
};

/// Takes the reduced dimensions widest strides first: most of them merge, and memory is read in order.
ReduceWalk reduce_walk(const Tensor& x, DimSet dims);

/// Where element i of a walk lies.
GRADUS_HD inline int64_t place(const Walk<1>& w, int64_t i) {
  if (w.rank == 1) return i * w.strides[0][0];
  int64_t at[1];
  w.locate(i, at);
  return at[0];
}

}  // namespace gradus
