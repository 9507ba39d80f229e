#include "ops/reduce_walk.h"

#include <algorithm>

namespace gradus {
namespace {

bool has(DimSet set, int d) { return set >> d & 1; }

DimSet set_of(const char* op, const Shape& shape, const Dims& dims) {
  if (dims.empty()) return (DimSet(1) << shape.rank()) - 1;
  DimSet set = 0;
  for (int dim : dims) {
    int d = shape.dim(dim, op);
    check(!has(set, d), op, ": dimension ", dim, " is listed twice");
    set |= DimSet(1) << d;
  }
  return set;
}

Shape reduced_shape(const Shape& shape, DimSet set, bool keep_dims) {
  Shape result;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!has(set, d))
      result.push_back(shape[d]);
    else if (keep_dims)
      result.push_back(1);
  }
  return result;
}

}  // namespace

int64_t Over::count() const {
  int64_t n = 1;
  for (int d = 0; d < x.rank(); ++d) n *= has(dims, d) ? x[d] : 1;
  return n;
}

Tensor Over::spread(const Tensor& y) const {
  return expand(y.shape() == kept ? y : reshape(y, kept), x);
}

Over over(const char* op, const Tensor& x, const Dims& dims, bool keep_dims) {
  check(bool(x), op, ": the tensor is undefined");
  DimSet set = set_of(op, x.shape(), dims);
  return {set, x.shape(), reduced_shape(x.shape(), set, true),
          reduced_shape(x.shape(), set, keep_dims)};
}

Over over_some(const char* op, const Tensor& x, const Dims& dims, bool keep_dims) {
  Over o = over(op, x, dims, keep_dims);
  check(o.count() > 0, op, " of no elements: shape ", o.x);
  return o;
}

ReduceWalk reduce_walk(const Tensor& x, DimSet dims) {
  int order[Shape::kMaxRank], reduced = 0;
  Shape sizes[2];
  Strides strides[2];
  auto take = [&](int side, int d) {
    sizes[side].push_back(x.shape()[d]);
    strides[side].push_back(x.strides()[d]);
  };
  for (int d = 0; d < x.rank(); ++d) {
    if (has(dims, d))
      order[reduced++] = d;
    else
      take(0, d);
  }
  std::stable_sort(order, order + reduced,
                   [&](int a, int b) { return x.strides()[a] > x.strides()[b]; });
  for (int i = 0; i < reduced; ++i) take(1, order[i]);
  return {{{&sizes[0]}, {&strides[0]}}, {{&sizes[1]}, {&strides[1]}}};
}

}  // namespace gradus
