// SwiGLU [Shazeer 2020]:   x = [g, u] in its last dimension,   y = silu(g) ⊙ u
//
// With s = σ(g) and silu' = s (1 + g (1 − s)):
//   dg = dy u s (1 + g (1 − s)),   du = dy g s,        dx = [dg, du]
//
// One product X Wᵀ makes g and u side by side. They are read where they lie, and the gradient is
// written where that product wants it: each value of x, dy and dx crosses the memory bus once.
//
//   row of x, dx   │ g₀ g₁ … g_{H−1} │ u₀ u₁ … u_{H−1} │        row of y, dy   │ y₀ … y_{H−1} │
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "core/elementwise.h"
#include "core/math.h"
#include "ops/ops.h"

namespace gradus {
namespace {

template <class T>
GRADUS_MATH T swiglu_value(T g, T u) {
  return g * math::sigmoid(g) * u;
}
template <class T>
GRADUS_MATH void swiglu_gradients(T g, T u, T dy, T& dg, T& du) {
  T s = math::sigmoid(g), p = dy * s;
  dg = p * u * (1 + g * (1 - s));
  du = p * g;
}

// ---- CPU: one row

template <class T>
void forward_row(int64_t H, const T* x, T* y) {
  using C = Compute<T>;
  const T *g = x, *u = x + H;
#pragma GCC ivdep
  for (int64_t j = 0; j < H; ++j) y[j] = T(swiglu_value(C(g[j]), C(u[j])));
}

template <class T>
void backward_row(int64_t H, const T* x, const T* dy, T* dx) {
  using C = Compute<T>;
  const T *g = x, *u = x + H;
#pragma GCC ivdep
  for (int64_t j = 0; j < H; ++j) {
    C dg, du;
    swiglu_gradients(C(g[j]), C(u[j]), C(dy[j]), dg, du);
    dx[j] = T(dg);
    dx[H + j] = T(du);
  }
}

// ---- CUDA: a thread takes V neighbours of a row; the blocks of a grid's y share the rows

#if defined(__CUDACC__)

template <int V, class T>
__global__ void swiglu_forward_kernel(int64_t rows, int64_t H, const T* x, T* y) {
  using C = Compute<T>;
  using P = Pack<T, V>;
  int64_t j = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (j >= H) return;
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    P g = *reinterpret_cast<const P*>(x + 2 * H * r + j), out;
    P u = *reinterpret_cast<const P*>(x + 2 * H * r + H + j);
#pragma unroll
    for (int k = 0; k < V; ++k) out.v[k] = T(swiglu_value(C(g.v[k]), C(u.v[k])));
    *reinterpret_cast<P*>(y + H * r + j) = out;
  }
}

template <int V, class T>
__global__ void swiglu_backward_kernel(int64_t rows, int64_t H, const T* x, const T* dy, T* dx) {
  using C = Compute<T>;
  using P = Pack<T, V>;
  int64_t j = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (j >= H) return;
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    P g = *reinterpret_cast<const P*>(x + 2 * H * r + j), dg;
    P u = *reinterpret_cast<const P*>(x + 2 * H * r + H + j), du;
    P d = *reinterpret_cast<const P*>(dy + H * r + j);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      C a, b;
      swiglu_gradients(C(g.v[k]), C(u.v[k]), C(d.v[k]), a, b);
      dg.v[k] = T(a);
      du.v[k] = T(b);
    }
    *reinterpret_cast<P*>(dx + 2 * H * r + j) = dg;
    *reinterpret_cast<P*>(dx + 2 * H * r + H + j) = du;
  }
}

/// Runs `wide`, which moves 16 bytes at a time, where all rows start at multiples of 16 bytes; else
/// `narrow`.
template <class T, class... Arrays>
void launch(Device device, int64_t rows, int64_t H, void (*wide)(int64_t, int64_t, Arrays...),
            void (*narrow)(int64_t, int64_t, Arrays...), Arrays... arrays) {
  constexpr int64_t V = 16 / sizeof(T);
  bool even = H % V == 0 && (aligned_to(16, arrays) && ...);
  int64_t columns = even ? H / V : H;
  unsigned threads = unsigned(std::min<int64_t>(256, (columns + 31) / 32 * 32));
  dim3 grid(unsigned((columns + threads - 1) / threads), unsigned(std::min<int64_t>(rows, 65535)));
  (even ? wide : narrow)<<<grid, threads, 0, cuda::stream(device)>>>(rows, H, arrays...);
  cuda::check_launch("swiglu kernel");
}

#endif

// ---- the op. x (rows, 2H) contiguous, y (rows, H)

void forward_values(const Tensor& x, const Tensor& y) {
  int64_t H = y.size(-1), rows = H ? y.numel() / H : 0;
  if (rows == 0) return;
  dispatch_floating("swiglu", x.dtype(), [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
#if defined(__CUDACC__)
    if (x.device().is_cuda())
      return launch<T>(x.device(), rows, H, swiglu_forward_kernel<16 / sizeof(T), T>,
                       swiglu_forward_kernel<1, T>, in, out);
#endif
    parallel_for(rows, std::max<int64_t>(1, kGrain / H), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) forward_row(H, in + 2 * H * r, out + H * r);
    });
  });
}

void backward_values(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  int64_t H = dy.size(-1), rows = H ? dy.numel() / H : 0;
  if (rows == 0) return;
  dispatch_floating("swiglu", x.dtype(), [&]<class T>() {
    const T *in = x.data<T>(), *d = dy.data<T>();
    T* out = dx.data<T>();
#if defined(__CUDACC__)
    if (x.device().is_cuda())
      return launch<T>(x.device(), rows, H, swiglu_backward_kernel<16 / sizeof(T), T>,
                       swiglu_backward_kernel<1, T>, in, d, out);
#endif
    parallel_for(rows, std::max<int64_t>(1, kGrain / H), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        backward_row(H, in + 2 * H * r, d + H * r, out + 2 * H * r);
    });
  });
}

struct Swiglu {
  static constexpr auto name = "swiglu";
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    Shape half = input.shape();
    half[-1] /= 2;
    Tensor y = empty(half, input.dtype(), input.device());
    forward_values(contiguous(input), y);
    return y;
  }
  Tensor backward(const Tensor& dy) {
    Tensor dx = empty_like(*x);
    backward_values(contiguous(*x), contiguous(dy), dx);
    return dx;
  }
  Tensor backward_recorded(const Tensor& dy, Needs) {
    Tensors halves = split(*x, 2, -1);
    Tensor g = halves[0], u = halves[1], s = sigmoid(g);
    return cat({dy * u * s * (1 + g * (1 - s)), dy * g * s}, -1);
  }
};

}  // namespace

Tensor swiglu(const Tensor& x) {
  check(bool(x), "swiglu of an undefined tensor");
  check(x.rank() >= 1 && x.size(-1) % 2 == 0,
        "swiglu needs [g, u] in the last dimension, of even size; got ", x.shape());
  return apply(Swiglu{}, x);
}

static const Gradcheck checks[] = {
    {"swiglu",
     [](Sampler& s) {
       return swiglu(s.normal({3, 8}));
     },
     true},
    {"swiglu",
     [](Sampler& s) {
       return swiglu(s.normal({2, 3, 32}));
     },
     true},
    {"swiglu",
     [](Sampler& s) {
       return swiglu(expand(s.normal({6}), {2, 6}));
     },
     true},
    {"swiglu",
     [](Sampler& s) {
       return swiglu(s.normal({0, 6}));
     }},
    {"swiglu",
     [](Sampler& s) {
       return swiglu(s.normal({3, 0}));
     }},
};

}  // namespace gradus
