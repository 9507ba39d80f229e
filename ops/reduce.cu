// Sums and products over some dimensions of x. With dy repeated along those dimensions:
//
//   sum    Σ x_i                    dx_i = dy
//   mean   μ = Σ x_i / n            dx_i = dy / n
//   prod   Π x_i                    dx_i = dy Π_{j<i} x_j Π_{j>i} x_j
//   var    Σ (x_i − μ)² / (n − c)   dx_i = dy 2 (x_i − μ) / (n − c),   as Σ (x_i − μ) ∂μ/∂x = 0
//
// The two products in dx of prod are running products from either end: no division, so that zeros are
// nothing special.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/reduce.h"

namespace gradus {
namespace {

// ---- what is folded

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

template <class A>
struct Product {
  using State = A;
  GRADUS_HD A identity() const { return 1; }
  GRADUS_HD A add(A s, A x, int64_t) const { return s * x; }
  GRADUS_HD A combine(A a, A b) const { return a * b; }
  GRADUS_HD A finish(A s) const { return s; }
};

template <class A>
struct Moments {
  A n, mean, squares;  // squares: Σ (x − mean)²
};

/// Means and squares of two sets become those of their union [Chan, Golub & LeVeque 1979]; adding one
/// element is the case of a set of one. Nothing large is subtracted from something large.
template <class A>
struct Variance {
  A correction;
  using State = Moments<A>;
  GRADUS_HD State identity() const { return {0, 0, 0}; }
  GRADUS_HD State add(State s, A x, int64_t) const {
    A n = s.n + 1, d = x - s.mean, mean = s.mean + d / n;
    return {n, mean, s.squares + d * (x - mean)};
  }
  GRADUS_HD State combine(State a, State b) const {
    if (b.n == 0) return a;
    A n = a.n + b.n, d = b.mean - a.mean, share = b.n / n;
    return {n, a.mean + d * share, a.squares + b.squares + d * d * a.n * share};
  }
  GRADUS_HD A finish(State s) const { return s.squares / (s.n - correction); }

  /// In two passes, which vectorise: the mean, then the squares about it.
  template <class T>
  State run(const T* x, int64_t n, int64_t) const {
    A mean = detail::cpu_lanes(Total<A>{A(n)}, x, n, 0) / A(n);
    return {A(n), mean, detail::cpu_lanes(SquaresAbout{mean}, x, n, 0)};
  }
  struct SquaresAbout {
    A mean;
    using State = A;
    A identity() const { return 0; }
    A add(A s, A x, int64_t) const { return s + (x - mean) * (x - mean); }
    A combine(A a, A b) const { return a + b; }
  };
};

// ---- the gradient of a product

/// One output: dx_r ← dy Π_{j≠r} x_j for its elements, which lie alike in x and dx.
template <class A>
GRADUS_HD void products_of_others(const Walk<1>& w, A dy, const A* x, A* dx) {
  A before = dy, after = 1;
  for (int64_t r = 0; r < w.numel; ++r) {
    int64_t at = place(w, r);
    dx[at] = before;
    before *= x[at];
  }
  for (int64_t r = w.numel - 1; r >= 0; --r) {
    int64_t at = place(w, r);
    dx[at] *= after;
    after *= x[at];
  }
}

#if defined(__CUDACC__)
/// A thread an output: products over more than a few hundred elements over- or underflow anyway.
template <class A>
__global__ void products_kernel(__grid_constant__ const ReduceWalk w, const A* dy, const A* x,
                                A* dx) {
  int64_t o = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (o >= w.kept.numel) return;
  int64_t at = place(w.kept, o);
  products_of_others(w.reduced, dy[o], x + at, dx + at);
}
#endif

/// dx for contiguous x and dy.
template <class A>
void products_of_others(Device device, const ReduceWalk& w, const A* dy, const A* x, A* dx) {
#if defined(__CUDACC__)
  if (device.is_cuda()) {
    products_kernel<<<unsigned(detail::blocks_of(w.kept.numel, 128)), 128, 0,
                      cuda::stream(device)>>>(w, dy, x, dx);
    return cuda::check_launch("gradient of prod");
  }
#endif
  check(!device.is_cuda(), "prod: this file was compiled without CUDA");
  parallel_for(w.kept.numel, kGrain / (w.reduced.numel + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      int64_t at = place(w.kept, o);
      products_of_others(w.reduced, dy[o], x + at, dx + at);
    }
  });
}

// ---- the ops

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

struct Prod {
  static constexpr auto name = "prod";
  Over over{};
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    return reduce<Product>(name, input, over.dims, over.result);
  }
  /// In f32 for the 16-bit types: running products would leave the range of f16.
  Tensor backward(const Tensor& dy) {
    DType wide = x->dtype() == DType::f64 ? DType::f64 : DType::f32;
    Tensor factors = contiguous(cast(*x, wide)), seed = contiguous(cast(dy, wide));
    Tensor dx = empty_like(factors);
    if (dx.numel() == 0) return cast(dx, dy.dtype());
    dispatch_floating(name, wide, [&]<class A>() {
      if constexpr (sizeof(A) >= 4)
        products_of_others(dx.device(), reduce_walk(factors, over.dims), seed.data<A>(),
                           factors.data<A>(), dx.data<A>());
    });
    return cast(dx, dy.dtype());
  }
};

struct Var {
  static constexpr auto name = "var";
  static constexpr bool recordable = true;
  Over over{};
  double correction = 0;
  Dims dims{};
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    return reduce<Variance>(name, input, over.dims, over.result, correction);
  }
  /// Centred twice, because the first mean is rounded to the type of x.
  Tensor backward(const Tensor& dy) {
    Tensor d = sub(*x, mean(*x, dims, true));
    d = sub(d, mean(d, dims, true));
    return mul(d, over.spread(mul(dy, 2 / (double(over.count()) - correction))));
  }
};

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keep_dims) {
  return apply(Sum{.over = over(Sum::name, x, dims, keep_dims)}, x);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keep_dims) {
  return apply(Mean{.over = over_some(Mean::name, x, dims, keep_dims)}, x);
}

Tensor prod(const Tensor& x, const Dims& dims, bool keep_dims) {
  return apply(Prod{.over = over(Prod::name, x, dims, keep_dims)}, x);
}

Tensor var(const Tensor& x, const Dims& dims, bool keep_dims, double correction) {
  Over o = over_some(Var::name, x, dims, keep_dims);
  check(double(o.count()) > correction, "var of ", o.count(), " elements with the correction ",
        correction, ": shape ", o.x);
  return apply(Var{.over = o, .correction = correction, .dims = dims}, x);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  int more = x.rank() - shape.rank();
  bool fits = more >= 0;
  Over over{.x = x.shape(), .kept = x.shape(), .result = shape};
  for (int d = 0; d < x.rank() && fits; ++d) {
    int64_t size = d < more ? 1 : shape[d - more];
    fits = size == 1 || size == x.shape()[d];
    if (d >= more && size == x.shape()[d]) continue;
    over.dims |= DimSet(1) << d;
    over.kept[d] = 1;
  }
  check(fits, "sum_to: ", x.shape(), " was not broadcast from ", shape);
  return apply(Sum{.over = over}, x);
}

void sum_rows_into(const Tensor& y, const Tensor& x, double beta) {
  int64_t n = x.size(-1);
  check(y.shape() == Shape{n} && y.is_contiguous() && y.device() == x.device() &&
            (beta == 0 || beta == 1),
        "sum_rows_into: ", y.describe(), " ← ", x.describe(), " + ", beta, " times itself");
  y.will_write("sum_rows_into");
  DimSet rows = (DimSet(1) << (x.rank() - 1)) - 1;
  if (n == 0) return;
  dispatch_floating("sum_rows_into", x.dtype(), [&]<class T>() {
    using A = Compute<T>;
    detail::reduce_into<T>(Results<A>{y.data<A>(), beta == 1}, Total<A>{1}, x, rows);
  });
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
    {"prod",
     [](Sampler& s) {
       return prod(s.normal({2, 3, 2}), {0, 2});
     }},
    {"prod",
     [](Sampler& s) {
       return prod(s.normal({3, 4}), {-1}, true);
     }},
    {"prod",
     [](Sampler& s) {
       return prod(s.normal({2, 0, 3}), {1});
     }},
    {"var",
     [](Sampler& s) {
       return var(s.normal({2, 3, 4}), {0, 2});
     },
     true},
    {"var",
     [](Sampler& s) {
       return var(s.normal({3, 5}), {-1}, true, 1);
     },
     true},
};

}  // namespace gradus
