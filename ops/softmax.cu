// Softmax and its logarithm, of each row x of a matrix:
//
//   p_i = e^{x_i} / Σ_j e^{x_j}        ∂p_i/∂x_j = p_i (δ_ij − p_j)      dx_j = p_j (dp_j − Σ_i p_i dp_i)
//   ℓ_i = x_i − log Σ_j e^{x_j}        ∂ℓ_i/∂x_j = δ_ij − p_j            dx_j = dℓ_j − p_j Σ_i dℓ_i
//
// Adding a number to a row changes neither, so its maximum m is subtracted and no power overflows:
//
//   s = Σ_j e^{x_j − m} ≥ 1,   p_i = e^{x_i − m} / s,   ℓ_i = (x_i − m) − log s
//
// An entry of −∞ has weight 0 and no gradient. A row of nothing else has no weights to share: there
// p = 0, ℓ = −∞, dx = 0. A NaN or +∞ makes its row NaN, by way of s.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "core/math.h"
#include "core/parallel_for.h"
#include "ops/ops.h"
#include "ops/row_sums.h"

namespace gradus {
namespace {

template <class A>
constexpr A kMinusInfinity = -std::numeric_limits<A>::infinity();

/// x_i ↦ p_i or ℓ_i, once m and s are known.
template <class A, bool kLog>
struct Normalise {
  A shift, factor;

  GRADUS_HD Normalise(A m, A s)
      : shift(m), factor(kLog ? (s == 0 ? A(0) : math::log(s)) : (s == 0 ? A(0) : 1 / s)) {}
  GRADUS_HD A operator()(int64_t, A x) const {
    return kLog ? (x - shift) - factor : math::exp(x - shift) * factor;
  }
};

/// (y_i, dy_i) ↦ dx_i, where y is p or ℓ: the terms of the row's sum, then the gradient. `live` counts the
/// entries with a weight, which a row of −∞ has none of.
template <class A, bool kLog>
struct Differentiate {
  A total, live;

  static GRADUS_HD A term(A y, A dy) { return kLog ? dy : y == 0 ? A(0) : y * dy; }
  static GRADUS_HD A is_live(A y) { return y == (kLog ? kMinusInfinity<A> : A(0)) ? A(0) : A(1); }
  GRADUS_HD A operator()(int64_t, A y, A dy) const {
    if (kLog) return live == 0 ? A(0) : dy - math::exp(y) * total;
    return y == 0 ? A(0) : y * (dy - total);
  }
};

// ---- CPU

/// y ← softmax of the n numbers x, or its logarithm. `wide` has room for n.
template <class T, bool kLog>
void forward_row(int64_t n, const T* x, T* y, Compute<T>* wide) {
  using A = Compute<T>;
  A m = kMinusInfinity<A>, s = 0;
#pragma omp simd reduction(max : m)
  for (int64_t i = 0; i < n; ++i) m = A(x[i]) > m ? A(x[i]) : m;
  if (m == kMinusInfinity<A>) m = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) {
    A e = math::exp(A(x[i]) - m);
    if (!kLog) wide[i] = e;
    s += e;
  }
  Normalise<A, kLog> normalise(m, s);
  if (kLog)
    for (int64_t i = 0; i < n; ++i) y[i] = T(normalise(i, A(x[i])));
  else
    for (int64_t i = 0; i < n; ++i) y[i] = T(wide[i] * normalise.factor);
}

template <class T, bool kLog>
void backward_row(int64_t n, const T* y, const T* dy, T* dx) {
  using A = Compute<T>;
  using D = Differentiate<A, kLog>;
  A total = 0, live = 0;
#pragma omp simd reduction(+ : total, live)
  for (int64_t i = 0; i < n; ++i) {
    total += D::term(A(y[i]), A(dy[i]));
    live += D::is_live(A(y[i]));
  }
  D d{total, live};
  for (int64_t i = 0; i < n; ++i) dx[i] = T(d(i, A(y[i]), A(dy[i])));
}

template <class T, bool kLog>
void forward_cpu(int64_t rows, int64_t n, const T* x, T* y) {
  parallel_for(rows, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    std::vector<Compute<T>> wide(kLog ? 0 : size_t(n));
    for (int64_t r = begin; r < end; ++r)
      forward_row<T, kLog>(n, x + r * n, y + r * n, wide.data());
  });
}

template <class T, bool kLog>
void backward_cpu(int64_t rows, int64_t n, const T* y, const T* dy, T* dx) {
  parallel_for(rows, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      backward_row<T, kLog>(n, y + r * n, dy + r * n, dx + r * n);
  });
}

// ---- CUDA

#if defined(__CUDACC__)

template <class T, int kPacks, bool kLog>
__global__ void __launch_bounds__(512, 2)
    softmax_forward_kernel(int64_t rows, int64_t n, const T* x, T* y) {
  using A = Compute<T>;
  for (int64_t r = first_row(); r < rows; r += row_step()) {
    Row<T, kPacks> row(x + r * n, n);
    A m[1] = {kMinusInfinity<A>}, s[1] = {0};
    row.each([&](int64_t, A v) { m[0] = v > m[0] ? v : m[0]; });
    join_row(Largest{}, m);
    const A shift = m[0] == kMinusInfinity<A> ? A(0) : m[0];
    row.each([&](int64_t, A v) { s[0] += exp_for<T>(v - shift); });
    join_row(Sum{}, s);
    const Normalise<A, kLog> normalise(shift, s[0]);
    row.store(y + r * n, [&](int64_t i, A v) {
      return kLog ? normalise(i, v) : exp_for<T>(v - shift) * normalise.factor;
    });
  }
}

template <class T, int kPacks, bool kLog>
__global__ void __launch_bounds__(512)
    softmax_backward_kernel(int64_t rows, int64_t n, const T* y, const T* dy, T* dx) {
  using A = Compute<T>;
  using D = Differentiate<A, kLog>;
  for (int64_t r = first_row(); r < rows; r += row_step()) {
    Row<T, kPacks> out(y + r * n, n), gradient(dy + r * n, n);
    A sums[2] = {0, 0};
    out.each([&](int64_t, A v, A g) { sums[0] += D::term(v, g), sums[1] += D::is_live(v); },
             gradient);
    join_row(Sum{}, sums);
    out.store(dx + r * n, D{sums[0], sums[1]}, gradient);
  }
}

constexpr int64_t kManyBlocks = 1 << 30;
template <class T>
constexpr int kHeld = sizeof(T) == 8 ? 0 : 8;  // packs a thread; f64 is for checking, not for speed

template <class T, bool kLog>
void forward_cuda(Device device, int64_t rows, int64_t n, const T* x, T* y) {
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = row_launch<T, kHeld<T>>(rows, n, 512, kManyBlocks, {x, y});
  if (l.held)
    softmax_forward_kernel<T, kHeld<T>, kLog><<<l.blocks, l.threads, 0, stream>>>(rows, n, x, y);
  else
    softmax_forward_kernel<T, 0, kLog><<<l.blocks, l.threads, 0, stream>>>(rows, n, x, y);
  cuda::check_launch("softmax kernel");
}

template <class T, bool kLog>
void backward_cuda(Device device, int64_t rows, int64_t n, const T* y, const T* dy, T* dx) {
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = row_launch<T, kHeld<T>>(rows, n, 512, kManyBlocks, {y, dy, dx});
  if (l.held)
    softmax_backward_kernel<T, kHeld<T>, kLog>
        <<<l.blocks, l.threads, 0, stream>>>(rows, n, y, dy, dx);
  else
    softmax_backward_kernel<T, 0, kLog><<<l.blocks, l.threads, 0, stream>>>(rows, n, y, dy, dx);
  cuda::check_launch("softmax backward kernel");
}

#endif

// ---- op, along the last dimension

template <bool kLog>
struct Softmax {
  static constexpr auto name = kLog ? "log_softmax" : "softmax";
  SavedOutput y{};

  Tensor forward(const Tensor& input) {
    Tensor x = contiguous(input), result = empty_like(x);
    int64_t n = x.size(-1), rows = n ? x.numel() / n : 0;
    dispatch_floating(name, x.dtype(), [&]<class T>() {
      if (rows == 0) return;
#if defined(__CUDACC__)
      if (x.device().is_cuda())
        return forward_cuda<T, kLog>(x.device(), rows, n, x.data<T>(), result.data<T>());
#endif
      forward_cpu<T, kLog>(rows, n, x.data<T>(), result.data<T>());
    });
    y = result;
    return result;
  }

  Tensor backward(const Tensor& gradient) {
    Tensor p = *y, dy = contiguous(gradient), dx = empty_like(p);
    int64_t n = p.size(-1), rows = n ? p.numel() / n : 0;
    dispatch_floating(name, p.dtype(), [&]<class T>() {
      if (rows == 0) return;
#if defined(__CUDACC__)
      if (p.device().is_cuda())
        return backward_cuda<T, kLog>(p.device(), rows, n, p.data<T>(), dy.data<T>(), dx.data<T>());
#endif
      backward_cpu<T, kLog>(rows, n, p.data<T>(), dy.data<T>(), dx.data<T>());
    });
    return dx;
  }

  Tensor backward_recorded(const Tensor& dy, Needs) {
    if constexpr (kLog) return sub(dy, mul(exp(*y), sum(dy, {-1}, true)));
    Tensor p = *y;
    return mul(p, sub(dy, sum(mul(p, dy), {-1}, true)));
  }
};

/// `dim` is brought to the end, where rows are neighbours in memory, and back.
template <bool kLog>
Tensor along(const Tensor& x, int dim) {
  check(bool(x), Softmax<kLog>::name, ": the operand is undefined");
  dim = x.shape().dim(dim, Softmax<kLog>::name);
  if (dim == x.rank() - 1) return apply(Softmax<kLog>{}, x);
  return transpose(apply(Softmax<kLog>{}, transpose(x, dim, -1)), dim, -1);
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return along<false>(x, dim); }
Tensor log_softmax(const Tensor& x, int dim) { return along<true>(x, dim); }

static const Gradcheck checks[] = {
    {"softmax",
     [](Sampler& s) {
       return softmax(s.normal({3, 5}));
     },
     true},
    {"softmax",
     [](Sampler& s) {
       return softmax(s.normal({2, 3, 4}), 1);
     },
     true},
    {"softmax",
     [](Sampler& s) {
       return softmax(s.normal({2, 264}));
     }},
    {"softmax",
     [](Sampler& s) {
       return softmax(s.normal({0, 4}));
     }},
    {"softmax",
     [](Sampler& s) {
       return softmax(s.normal({3, 0}));
     }},
    {"log_softmax",
     [](Sampler& s) {
       return log_softmax(s.normal({3, 5}));
     },
     true},
    {"log_softmax",
     [](Sampler& s) {
       return log_softmax(s.normal({2, 3, 4}), 0);
     },
     true},
    {"log_softmax",
     [](Sampler& s) {
       return log_softmax(s.normal({2, 264}));
     }},
    {"log_softmax",
     [](Sampler& s) {
       return log_softmax(s.normal({0, 4}));
     }},
};

}  // namespace gradus
