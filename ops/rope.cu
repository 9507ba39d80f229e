// Rotary positions [Su et al. 2021]. Entries of x (…, T, d) are taken in pairs, and the pair i of
// position t is turned by the angle t θ_i:
//
//   ⎡y₁⎤   ⎡cos tθ  −sin tθ⎤ ⎡x₁⎤                                       half         (x_i, x_{i + d/2})
//   ⎣y₂⎦ = ⎣sin tθ   cos tθ⎦ ⎣x₂⎦      θ_i = base^{−2i/d},   pairs:     interleaved  (x_{2i}, x_{2i+1})
//
// The product of a query at t and a key at u then depends on t − u alone. A rotation's transpose is
// the rotation back, so   dx = dy turned by −t θ_i.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "core/elementwise.h"
#include "ops/rope.h"

namespace gradus {
namespace {

/// An array (B, G, M, T, d) of any strides but the last, which is 1.
template <class T>
struct Heads {
  T* data;
  int64_t groups, members;                 // G and M
  int64_t batch, group, member, position;  // strides

  explicit Heads(const Tensor& x)
      : data(static_cast<T*>(x.raw())),
        groups(x.size(1)),
        members(x.size(2)),
        batch(x.strides()[0]),
        group(x.strides()[1]),
        member(x.strides()[2]),
        position(x.strides()[3]) {}

  /// Row t of head n, counted over B, G and M.
  GRADUS_HD T* row(int64_t n, int64_t t) const {
    return data + n / members / groups * batch + n / members % groups * group +
           n % members * member + t * position;
  }
  bool aligned(int64_t elements) const {
    return aligned_to(elements * int64_t(sizeof(T)), data) && batch % elements == 0 &&
           group % elements == 0 && member % elements == 0 && position % elements == 0;
  }
};

/// y may be x: each pair is read before it is written.
template <class T>
struct Rotation {
  int64_t heads, length, d;  // B G M, T, d
  Heads<const T> x;
  Heads<T> y;
  int64_t first_position;
  double base, direction;  // +1, or −1 backward
};

template <class A>
GRADUS_HD void turn(A cosine, A sine, A& first, A& second) {
  A x1 = first, x2 = second;
  first = x1 * cosine - x2 * sine;
  second = x2 * cosine + x1 * sine;
}

// ---- CPU

/// cos and sin of all angles of one position, moved on from position to position: e^{i(t+1)θ} =
/// e^{itθ} e^{iθ} costs four products where a sine costs forty. In double, started anew at multiples
/// of kStretch, so that rounding stays below 1e-14 and no position depends on the cut into threads.
class Angles {
 public:
  static constexpr int64_t kStretch = 64;

  Angles(int64_t d, double base, double direction, int64_t position)
      : n_(size_t(d / 2)), state_(4 * n_) {
    for (size_t i = 0; i < n_; ++i) {
      double theta = std::pow(base, -2.0 * double(i) / double(d)) * direction;
      state_[i] = std::cos(double(position) * theta);
      state_[n_ + i] = std::sin(double(position) * theta);
      state_[2 * n_ + i] = std::cos(theta);
      state_[3 * n_ + i] = std::sin(theta);
    }
  }
  const double* waves() const { return state_.data(); }  // d/2 cosines, then d/2 sines
  void next() {
    double *c = state_.data(), *s = c + n_;
    const double *step_c = s + n_, *step_s = step_c + n_;
    for (size_t i = 0; i < n_; ++i) {
      double x = c[i] * step_c[i] - s[i] * step_s[i];
      s[i] = s[i] * step_c[i] + c[i] * step_s[i];
      c[i] = x;
    }
  }

 private:
  size_t n_;
  std::vector<double> state_;
};

template <bool kHalf, class T, class A>
void rotate_row(int64_t pairs, const T* x, T* y, const A* cosine, const A* sine) {
  constexpr int64_t step = kHalf ? 1 : 2;
  const int64_t other = kHalf ? pairs : 1;
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    A first = A(x[i * step]), second = A(x[i * step + other]);
    turn(cosine[i], sine[i], first, second);
    y[i * step] = T(first);
    y[i * step + other] = T(second);
  }
}

template <bool kHalf, class T>
void rotate_cpu(const Rotation<T>& r) {
  using A = Compute<T>;
  constexpr int64_t kStretch = Angles::kStretch;
  int64_t rows = r.heads, stretches = (r.length + kStretch - 1) / kStretch;
  auto rotate_stretch = [&](int64_t stretch, A* wave) {
    int64_t from = stretch * kStretch, to = std::min(r.length, from + kStretch);
    Angles angles(r.d, r.base, r.direction, r.first_position + from);
    for (int64_t t = from; t < to; ++t, angles.next()) {
      std::copy_n(angles.waves(), r.d, wave);
      for (int64_t n = 0; n < rows; ++n)
        rotate_row<kHalf>(r.d / 2, r.x.row(n, t), r.y.row(n, t), wave, wave + r.d / 2);
    }
  };
  int64_t grain = std::max<int64_t>(1, kGrain / (kStretch * rows * r.d));
  parallel_for(stretches, grain, [&](int64_t begin, int64_t end) {
    std::vector<A> wave(static_cast<size_t>(r.d));
    for (int64_t stretch = begin; stretch < end; ++stretch) rotate_stretch(stretch, wave.data());
  });
}

// ---- CUDA

#if defined(__CUDACC__)

/// cos and sin of t θ_i. The whole turns are taken off in double.
__device__ inline void wave(double turns, float& cosine, float& sine) {
  sincospif(float(2 * (turns - rint(turns))), &sine, &cosine);
}
__device__ inline void wave(double turns, double& cosine, double& sine) {
  sincospi(2 * (turns - rint(turns)), &sine, &cosine);
}

/// A thread has V pairs of one position, in two packs of V entries, and turns them in every
/// gridDim.y-th row: what cos and sin cost is shared by the rows.
template <bool kHalf, int V, class T>
__global__ void __launch_bounds__(128) rotate_kernel(const Rotation<T> r) {
  using A = Compute<T>;
  const int64_t groups = r.d / 2 / V, index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= r.length * groups) return;
  const int64_t t = index / groups, pair = index % groups * V;
  const int64_t at[2] = {kHalf ? pair : 2 * pair, kHalf ? pair + r.d / 2 : 2 * pair + V};
  A cosine[V], sine[V];
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const double theta = exp2(-2.0 * double(pair + j) / double(r.d) * log2(r.base));
    wave(double(r.first_position + t) * theta * (r.direction / 6.283185307179586), cosine[j],
         sine[j]);
  }
  for (int64_t n = blockIdx.y; n < r.heads; n += gridDim.y) {
    Pack<T, V> pack[2];
#pragma unroll
    for (int k = 0; k < 2; ++k)
      pack[k] = *reinterpret_cast<const Pack<T, V>*>(r.x.row(n, t) + at[k]);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      T& x1 = kHalf ? pack[0].v[j] : pack[2 * j / V].v[2 * j % V];
      T& x2 = kHalf ? pack[1].v[j] : pack[(2 * j + 1) / V].v[(2 * j + 1) % V];
      A first = A(x1), second = A(x2);
      turn(cosine[j], sine[j], first, second);
      x1 = T(first), x2 = T(second);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) *reinterpret_cast<Pack<T, V>*>(r.y.row(n, t) + at[k]) = pack[k];
  }
}

template <bool kHalf, class T>
void rotate_cuda(Device device, const Rotation<T>& r) {
  constexpr int V = 16 / int(sizeof(T)), kThreads = 128;
  cudaStream_t stream = cuda::stream(device);
  bool wide = r.d / 2 % V == 0 && r.x.aligned(V) && r.y.aligned(V);
  int64_t threads = r.length * (r.d / 2) / (wide ? V : 1),
          blocks = (threads + kThreads - 1) / kThreads;
  int64_t enough = std::max<int64_t>(1, 16 * cuda::multiprocessors(device) / blocks);
  dim3 grid(unsigned(blocks), unsigned(std::min({r.heads, enough, int64_t(65535)})));
  if (wide)
    rotate_kernel<kHalf, V><<<grid, kThreads, 0, stream>>>(r);
  else
    rotate_kernel<kHalf, 1><<<grid, kThreads, 0, stream>>>(r);
  cuda::check_launch("rope kernel");
}

#endif

// ---- op

/// x (…, T, d) as (B, G, M, T, d). With more dimensions than that, x is contiguous.
Tensor as_heads(const Tensor& x) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  for (; shape.rank() > 5; shape.erase(0), strides.erase(0)) shape[1] *= shape[0];
  for (; shape.rank() < 5; shape.insert(0, 1)) strides.insert(0, 0);
  return x.alias(shape, strides, x.offset());
}

struct Rope {
  static constexpr auto name = "rope";
  static constexpr bool recordable = true;
  RopeOptions options{};
  bool back = false;

  Tensor forward(const Tensor& x) {
    Tensor y = empty_like(x);
    bool readable = x.rank() <= 5 && (x.strides()[-1] == 1 || x.size(-1) == 0);
    rotate_into(y, readable ? x : contiguous(x), options, back);
    return y;
  }
  Tensor backward(const Tensor& dy) { return apply(Rope{.options = options, .back = !back}, dy); }
};

}  // namespace

void rotate_into(const Tensor& y, const Tensor& x, RopeOptions options, bool back) {
  if (y.numel() == 0) return;
  y.will_write("rope");
  Tensor from = as_heads(x), to = as_heads(y);
  dispatch_floating("rope", x.dtype(), [&]<class T>() {
    Rotation<T> r{from.numel() / (from.size(3) * from.size(4)),
                  from.size(3),
                  from.size(4),
                  Heads<const T>(from),
                  Heads<T>(to),
                  options.first_position,
                  options.base,
                  back ? -1.0 : 1.0};
    const bool half = options.kind == RopeKind::half;
#if defined(__CUDACC__)
    if (x.device().is_cuda())
      return half ? rotate_cuda<true>(x.device(), r) : rotate_cuda<false>(x.device(), r);
#endif
    half ? rotate_cpu<true>(r) : rotate_cpu<false>(r);
  });
}

Tensor rope(const Tensor& x, RopeOptions options) {
  check(bool(x), "rope: the operand is undefined");
  check(x.rank() >= 2 && x.size(-1) % 2 == 0, "rope: (…, T, d) with an even d is needed, got ",
        x.describe());
  check(options.base > 0, "rope: base ", options.base, " is not positive");
  return apply(Rope{.options = options}, x);
}

static const Gradcheck checks[] = {
    {"rope",
     [](Sampler& s) {
       return rope(s.normal({3, 4}));
     },
     true},
    {"rope",
     [](Sampler& s) {
       return rope(s.normal({2, 3, 5, 16}), {.first_position = 7});
     }},
    {"rope",
     [](Sampler& s) {
       return rope(s.normal({3, 6}), {.base = 500, .kind = RopeKind::interleaved});
     },
     true},
    {"rope",
     [](Sampler& s) {
       return rope(s.normal({2, 3, 32}), {.kind = RopeKind::interleaved});
     }},
    {"rope",
     [](Sampler& s) {
       return rope(transpose(s.normal({2, 5, 3, 4}), 1, 2));
     }},
    {"rope",
     [](Sampler& s) {
       return rope(s.normal({2, 0, 4}));
     }},
};

}  // namespace gradus
