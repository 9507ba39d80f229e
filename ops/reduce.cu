// Reductions: y = fold of x over some dimensions. With dy spread over those dimensions:
//
//   sum    dx_i = dy                      mean   dx_i = dy / n
//
// Sums of f16 and bf16 are taken in f32 and rounded once.
#include "ops/reduce.h"

#include <algorithm>

#include "autograd/apply.h"
#include "autograd/gradcheck.h"

namespace gradus {

DimSet dims_of(const char* op, const Shape& shape, const Dims& dims) {
  if (dims.empty()) return (DimSet(1) << shape.rank()) - 1;
  DimSet set = 0;
  for (int dim : dims) {
    DimSet bit = DimSet(1) << shape.dim(dim, op);
    check(!(set & bit), op, ": dimension ", dim, " is listed twice");
    set |= bit;
  }
  return set;
}

Shape reduced_shape(const Shape& shape, DimSet set, bool keep_dims) {
  Shape result;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!(set >> d & 1))
      result.push_back(shape[d]);
    else if (keep_dims)
      result.push_back(1);
  }
  return result;
}

ReduceWalk reduce_walk(const Tensor& x, DimSet set) {
  int order[Shape::kMaxRank], reduced = 0;
  Shape sizes[2];
  Strides strides[2];
  for (int d = 0; d < x.rank(); ++d) {
    if (set >> d & 1) {
      order[reduced++] = d;
    } else {
      sizes[0].push_back(x.shape()[d]);
      strides[0].push_back(x.strides()[d]);
    }
  }
  std::stable_sort(order, order + reduced,
                   [&](int a, int b) { return x.strides()[a] > x.strides()[b]; });
  for (int i = 0; i < reduced; ++i) {
    sizes[1].push_back(x.shape()[order[i]]);
    strides[1].push_back(x.strides()[order[i]]);
  }
  return {{{&sizes[0]}, {&strides[0]}}, {{&sizes[1]}, {&strides[1]}}};
}

namespace {

/// What a reduction runs over. `kept`: the reduced sizes are 1; `result`: they may be left out.
struct Over {
  DimSet dims = 0;
  Shape x{}, kept{}, result{};
  int64_t count() const { return x.numel() / std::max<int64_t>(kept.numel(), 1); }

  /// Something of the shape of the result, repeated along what was reduced: the shape of x.
  Tensor spread(const Tensor& y) const {
    return expand(kept == y.shape() ? y : reshape(y, kept), x);
  }
};

Over over(const char* op, const Tensor& x, const Dims& dims, bool keep_dims) {
  check(bool(x), op, ": the tensor is undefined");
  DimSet set = dims_of(op, x.shape(), dims);
  return {set, x.shape(), reduced_shape(x.shape(), set, true),
          reduced_shape(x.shape(), set, keep_dims)};
}

/// The same where a result of no elements has no meaning.
Over over_some(const char* op, const Tensor& x, const Dims& dims, bool keep_dims) {
  Over o = over(op, x, dims, keep_dims);
  for (int d = 0; d < x.rank(); ++d)
    check(o.x[d] != 0 || o.kept[d] == 0, op, " of no elements: shape ", o.x);
  return o;
}

/// Σ x / divisor
template <class A>
struct Total {
  A divisor;
  using State = A;
  GRADUS_HD A identity() const { return 0; }
  GRADUS_HD A add(A s, A x, int64_t) const { return s + x; }
  GRADUS_HD A combine(A a, A b) const { return a + b; }
  GRADUS_HD A finish(A s) const { return s / divisor; }
};

struct Sum {
  static constexpr auto name = "sum";
  static constexpr bool recordable = true;
  Over over{};
  Tensor forward(const Tensor& x) { return reduce<Total>(name, x, over.dims, over.result, 1.0); }
  Tensor backward(const Tensor& dy) { return over.spread(dy); }
};

struct Mean {
  static constexpr auto name = "mean";
  static constexpr bool recordable = true;
  Over over{};
  Tensor forward(const Tensor& x) {
    return reduce<Total>(name, x, over.dims, over.result, double(over.count()));
  }
  Tensor backward(const Tensor& dy) { return over.spread(mul(dy, 1 / double(over.count()))); }
};

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keep_dims) {
  return apply(Sum{.over = over(Sum::name, x, dims, keep_dims)}, x);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keep_dims) {
  return apply(Mean{.over = over_some(Mean::name, x, dims, keep_dims)}, x);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  int more = x.rank() - shape.rank();
  bool fits = more >= 0;
  Over over{.x = x.shape(), .result = shape};
  for (int d = 0; d < x.rank() && fits; ++d) {
    int64_t size = d < more ? 1 : shape[d - more];
    fits = size == 1 || size == x.shape()[d];
    if (d < more || size != x.shape()[d]) over.dims |= DimSet(1) << d;
  }
  check(fits, "sum_to: ", x.shape(), " was not broadcast from ", shape);
  over.kept = reduced_shape(x.shape(), over.dims, true);
  return apply(Sum{.over = over}, x);
}

// ---- examples for the gradient check

static const Gradcheck checks[] = {
    {"sum",
     [](Sampler& s) {
       return sum(s.normal({3, 4}));
     },
     true},
    {"sum",
     [](Sampler& s) {
       return sum(s.normal({2, 3, 4}), {0, -1});
     },
     true},
    {"sum",
     [](Sampler& s) {
       return sum(s.normal({2, 3, 4}), {1}, true);
     },
     true},
    {"sum",
     [](Sampler& s) {
       return sum(s.normal({0, 3}), {0});
     }},
    {"sum",
     [](Sampler& s) {
       Tensor x = s.normal({2, 3, 4});
       return sum_to(x * x, {3, 1});
     },
     true},
    {"mean",
     [](Sampler& s) {
       return mean(s.normal({3, 4}));
     },
     true},
    {"mean",
     [](Sampler& s) {
       return mean(s.normal({3, 4, 2}), {-2});
     },
     true},
    {"mean",
     [](Sampler& s) {
       Tensor x = s.normal({3, 4});
       return mean(x * x, {0, 1}, true);
     },
     true},
};

}  // namespace gradus
