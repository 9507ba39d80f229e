// Elements and slices chosen by integers. All are linear in x (ops/lookup.h), and each is the transpose
// of another:
//
//   index_select   y[…, m, …] = x[…, id_m, …]       dx[…, n, …] = Σ_{m: id_m = n} dy[…, m, …]
//   gather         y[i, j] = x[index[i, j], j]      dx[n, j] = Σ_{i: index[i,j] = n} dy[i, j]
//   scatter_add    y = x, y[index[i, j], j] += s[i, j]       dx = dy,   ds = gather(dy)
#include "autograd/accumulate.h"
#include "autograd/gradcheck.h"
#include "ops/lookup.h"

namespace gradus {
namespace {

int64_t product(const Shape& shape, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= shape[d];
  return n;
}

/// Slices of x along `dim`, one for each id.
RowMap slices(const Tensor& x, int dim, const Tensor& ids) {
  RowMap map{.table = x.shape()};
  for (int d = 0; d < x.rank(); ++d) {
    if (d != dim)
      map.result.push_back(x.shape()[d]);
    else
      for (int64_t size : ids.shape()) map.result.push_back(size);
  }
  map.outer = product(x.shape(), 0, dim);
  map.limit = x.shape()[dim];
  map.count = ids.numel();
  map.length = product(x.shape(), dim + 1, x.rank());
  return map;
}

/// Single elements of x: `index` says for each where along `dim`.
RowMap elements(const char* op, const Tensor& x, int dim, const Tensor& index) {
  bool fits = x.rank() == index.rank();
  for (int d = 0; d < x.rank() && fits; ++d) fits = d == dim || x.shape()[d] == index.shape()[d];
  check(fits, op, ": the index of shape ", index.shape(), " differs from ", x.shape(),
        " in more than dimension ", dim);
  RowMap map{.table = x.shape(), .result = index.shape(), .shared = false};
  map.outer = product(x.shape(), 0, dim);
  map.limit = x.shape()[dim];
  map.count = index.shape()[dim];
  map.inner = product(x.shape(), dim + 1, x.rank());
  return map;
}

struct ScatterAdd {
  static constexpr auto name = "scatter_add";
  static constexpr bool recordable = true;
  RowMap map{};
  Saved index{};
  Tensor forward(const Tensor& x, const Tensor& i, const Tensor& source) {
    index = i;
    Tensor y = clone_values(x);
    add_rows(name, map, y, source, i, 1);
    return y;
  }
  Tensors backward(const Tensor& dy, Needs need) {
    return {need[0] ? dy : Tensor{}, Tensor{},
            need[2] ? apply(TakeRows<kGather>{.map = map}, dy, *index) : Tensor{}};
  }
};

}  // namespace

Tensor index_select(const Tensor& x, int dim, const Tensor& ids) {
  check_ids(kIndexSelect, x, ids);
  dim = x.shape().dim(dim, kIndexSelect);
  return apply(TakeRows<kIndexSelect>{.map = slices(x, dim, ids)}, x, ids);
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  check_ids(kGather, x, index);
  dim = x.shape().dim(dim, kGather);
  return apply(TakeRows<kGather>{.map = elements(kGather, x, dim, index)}, x, index);
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  check_ids(ScatterAdd::name, x, index);
  check(bool(source) && source.shape() == index.shape() && source.dtype() == x.dtype() &&
            source.device() == x.device(),
        "scatter_add: the source ", source.describe(),
        " must have the shape of the index, ", index.shape(), ", and type and device of ",
        x.describe());
  dim = x.shape().dim(dim, ScatterAdd::name);
  return apply(ScatterAdd{.map = elements(ScatterAdd::name, x, dim, index)}, x, index, source);
}

// ---- examples for the gradient check

static const Gradcheck checks[] = {
    {"index_select",
     [](Sampler& s) {
       return index_select(s.normal({4, 3}), 0, s.ids({6}, 4));
     },
     true},
    {"index_select",
     [](Sampler& s) {
       return index_select(s.normal({2, 5, 3}), -2, s.ids({4}, 5));
     },
     true},
    {"index_select",
     [](Sampler& s) {
       return index_select(s.normal({2, 3}), 1, s.ids({2, 2}, 3));
     },
     true},
    {"index_select",
     [](Sampler& s) {
       return index_select(s.normal({4, 3}), 0, s.ids({0}, 4));
     }},
    {"gather",
     [](Sampler& s) {
       return gather(s.normal({4, 3}), 0, s.ids({6, 3}, 4));
     },
     true},
    {"gather",
     [](Sampler& s) {
       return gather(s.normal({2, 3, 4}), -1, s.ids({2, 3, 2}, 4));
     },
     true},
    {"gather",
     [](Sampler& s) {
       Tensor x = s.normal({2, 3});
       return gather(x * x, 1, s.ids({2, 5}, 3));
     },
     true},
    {"scatter_add",
     [](Sampler& s) {
       return scatter_add(s.normal({4, 3}), 0, s.ids({6, 3}, 4), s.normal({6, 3}));
     },
     true},
    {"scatter_add",
     [](Sampler& s) {
       return scatter_add(s.normal({2, 3, 2}), 1, s.ids({2, 4, 2}, 3), s.normal({2, 4, 2}));
     },
     true},
};

}  // namespace gradus
