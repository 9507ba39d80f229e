#include "nn/parameter.h"

#include "ops/ops.h"

namespace gradus::nn {

ShardMap::ShardMap(const Shape& local, const Shard& shard) {
  run = std::max<int64_t>(1, local.numel());
  if (shard.dim < 0) return;
  check(shard.dim < local.rank() && shard.rank >= 0 && shard.rank < shard.ranks,
        "a tensor of shape ", local, " cannot be part ", shard.rank, " of ", shard.ranks,
        " along dimension ", shard.dim);
  check(shard.pieces > 0 && local[shard.dim] % shard.pieces == 0, "a shard of shape ", local,
        " does not consist of ", shard.pieces, " equal pieces along dimension ", shard.dim);
  check(
      shard.size == 0 || (shard.dim == 0 && shard.pieces == 1),
      "only a table that is cut along dimension 0, in one piece, can be padded; this is dimension ",
      shard.dim, " in ", shard.pieces, " pieces");
  rank = shard.rank, ranks = shard.ranks;
  int64_t length = local[shard.dim] / shard.pieces;
  for (int d = shard.dim + 1; d < local.rank(); ++d) length *= local[d];
  run = std::max<int64_t>(1, length);
}

Parameter::Parameter(const Shape& shape, Initializer init, Shard shard)
    : Tensor(empty(shape)), shard(shard), init(init) {
  ShardMap check_that_it_fits(shape, shard);
  if (shard.size) fill_(slice(*this, 0, shard.real(shape[0]), shape[0]), 0);
  requires_grad_();
}

Shape Parameter::global_shape() const {
  Shape whole = shape();
  if (shard.dim >= 0) whole[shard.dim] = shard.whole(whole[shard.dim]);
  return whole;
}

int64_t Parameter::real_numel() const {
  return shard.size ? numel() / size(0) * shard.real(size(0)) : numel();
}

}  // namespace gradus::nn
