#include "nn/parameter.h"

#include <algorithm>

namespace gradus::nn {

ShardMap::ShardMap(const Shape& local, const Shard& shard) {
  run = std::max<int64_t>(1, local.numel());
  if (shard.dim < 0) return;
  check(shard.dim < local.rank() && shard.rank >= 0 && shard.rank < shard.ranks,
        "a tensor of shape ", local, " cannot be part ", shard.rank, " of ", shard.ranks,
        " along dimension ", shard.dim);
  check(shard.pieces > 0 && local[shard.dim] % shard.pieces == 0, "a shard of shape ", local,
        " does not consist of ", shard.pieces, " equal pieces along dimension ", shard.dim);
  rank = shard.rank, ranks = shard.ranks;
  int64_t length = local[shard.dim] / shard.pieces;
  for (int d = shard.dim + 1; d < local.rank(); ++d) length *= local[d];
  run = std::max<int64_t>(1, length);
}

Parameter::Parameter(const Shape& shape, Initializer init, Shard shard)
    : Tensor(empty(shape)), shard(shard), init(init) {
  ShardMap check_that_it_fits(shape, shard);
  requires_grad_();
}

Shape Parameter::global_shape() const {
  Shape whole = shape();
  if (shard.dim >= 0) whole[shard.dim] *= shard.ranks;
  return whole;
}

}  // namespace gradus::nn
