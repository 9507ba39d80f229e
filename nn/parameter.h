#pragma once
// A parameter is a leaf tensor that knows two more things: which part of a cut whole it is, and how
// it starts.
#include <algorithm>

#include "autograd/tensor.h"

namespace gradus::nn {

/// How a parameter is cut over a group of ranks. Plain numbers: nn/ knows no communicator.
///
///   dim = 0, ranks = 2       the same with pieces = 2: gate over up, each cut by itself
///   ┌─ rank 0 ─┐             ┌─ rank 0 ─┐
///   │          │             ├─ rank 1 ─┤ gate
///   ├─ rank 1 ─┤             ├─ rank 0 ─┤
///   └──────────┘             └─ rank 1 ─┘ up
struct Shard {
  int dim = -1;               // the axis that is cut; −1: every rank holds all of it
  int rank = 0, ranks = 1;    // which part is mine, of how many
  int pieces = 1;             // equal parts of the axis that are cut one by one
  bool partial_grad = false;  // whole, but each rank sees part of the gradient (sequence parallel)
  int64_t size = 0;           // of the axis in the whole, if that is less than all parts together

  /// Of an axis whose part here is `local` long: its length in the whole, and how much of the part is
  /// there. What is behind that is padding: it is 0, has no gradient, and is never stored or counted.
  int64_t whole(int64_t local) const { return size ? size : local * ranks; }
  int64_t real(int64_t local) const {
    return size ? std::clamp(size - rank * local, int64_t(0), local) : local;
  }
};

/// A table of `size` rows cut into parts of `local` rows each, the last of which may be padding.
inline Shard padded_shard(int rank, int ranks, int64_t local, int64_t size) {
  return {.dim = 0, .rank = rank, .ranks = ranks, .size = local * ranks == size ? 0 : size};
}

/// From elements of a shard (row-major in its own shape) to elements of the whole parameter. Both are
/// made of runs of the same length, and a rank holds every ranks-th of them:
///
///   whole    │ run 0 of 0 │ run 0 of 1 │ run 1 of 0 │ run 1 of 1 │ …
struct ShardMap {
  int64_t run = 1;  // elements
  int rank = 0, ranks = 1;

  /// `local` is the shape of the shard. Error if it cannot be one.
  ShardMap(const Shape& local, const Shard& shard);
  GRADUS_HD int64_t operator()(int64_t i) const {
    int64_t k = i / run;
    return (k * ranks + rank) * run + (i - k * run);
  }
};

/// The distribution that a parameter's values are drawn from: see nn/init.h.
struct Initializer {
  enum class Kind { constant, uniform, normal };
  Kind kind = Kind::constant;
  double a = 0, b = 0;  // value; low and high; mean and deviation
};

/// A learnable tensor. Its memory is unwritten until initialize() (nn/init.h) or a checkpoint fills
/// it. A Parameter without shape is an absent one, such as the bias of a Linear that has none.
struct Parameter : Tensor {
  Shard shard;
  Initializer init;

  Parameter() = default;
  /// An existing leaf as a parameter, whole.
  explicit Parameter(const Tensor& leaf) : Tensor(leaf) {}
  /// `shape` is that of this rank's shard.
  Parameter(const Shape& shape, Initializer init, Shard shard = {});

  /// The shape of the whole.
  Shape global_shape() const;
  /// How many of its elements, from the first on, are not padding.
  int64_t real_numel() const;
};

}  // namespace gradus::nn
