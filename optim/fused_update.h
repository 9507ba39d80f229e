#pragma once
// One pass over the arenas: rule(θ_i, g_i, s_i, …) updates the master θ_i and the states s_i from the
// gradient g_i. Where parameters are 16 bits wide, the new θ_i is rounded into them in the same pass.
// What limits it is memory: each array is read and written once.
//
// A rule is a struct with
//
//   GRADUS_HD void begin(const StepNumbers& n, const Segment& group);    // rates, counts, clip factor
//   GRADUS_HD void operator()(W& theta, W g, W& s, …) const;
//
// where W is float or double. begin() runs where the numbers are, so that the host need not know them;
// it is the same code on both devices. operator() writes a·b + c as fused(a, b, c), and no other
// product next to a sum, so that no compiler is free to round differently: an element's result is the
// same bit for bit on every path.
#include "core/elementwise.h"
#include "optim/flat_buffer.h"
#include "optim/step_numbers.h"

namespace gradus::optim {

/// a b + c, rounded once where the processor can, twice elsewhere.
template <class W>
GRADUS_HD inline W fused(W a, W b, W c) {
#if defined(__FMA__) || defined(__CUDA_ARCH__) || defined(__ARM_FEATURE_FMA)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// A group in the state arenas, or a part of it: where it lies, and its rates.
struct Segment {
  int64_t begin = 0, end = 0;
  double lr_scale = 1, weight_decay_scale = 1;
  double min_lr = 0, max_lr = kNoLimit;

  Segment() = default;
  Segment(const Range& range, const ParameterGroup& group)
      : begin(range.begin),
        end(range.end),
        lr_scale(group.lr_scale),
        weight_decay_scale(group.weight_decay_scale),
        min_lr(group.min_lr),
        max_lr(group.max_lr) {}

  GRADUS_HD double lr(const StepNumbers& n) const {
    const double lr = n.lr * lr_scale;
    return lr < min_lr ? min_lr : lr > max_lr ? max_lr : lr;
  }
  GRADUS_HD double weight_decay(const StepNumbers& n) const {
    return n.weight_decay * weight_decay_scale;
  }
};

/// What one pass handles: segments one after the other in the state arenas, and so in the arena.
struct Segments {
  static constexpr int kMost = 8;
  int count = 0;
  Segment at[kMost];
  int64_t shift = 0;  // from state arenas to the arena

  int64_t begin() const { return at[0].begin; }
  int64_t end() const { return at[count - 1].end; }
  GRADUS_HD const Segment& holding(int64_t i) const {
    int k = 0;
    while (i >= at[k].end) ++k;
    return at[k];
  }
};

struct Pass {
  Segments segments;
  std::vector<int> buckets;  // whose own slices they are
};
/// What is updated here of the groups [first, last), in as few passes as can be.
std::vector<Pass> passes_of(const FlatBuffer& flat, int first, int last);

namespace detail {

// A master lies in one array or two: θ alone; θ, and p for f16 parameters; p for bf16, and the low half.

struct Nothing {};  // in place of the second

template <class W>
GRADUS_HD W master_in(W theta, Nothing) {
  return theta;
}
GRADUS_HD inline float master_in(float theta, f16) { return theta; }
GRADUS_HD inline float master_in(bf16 p, int16_t low) { return master_of(p, low); }

template <class W>
GRADUS_HD void put_master(W t, W& theta, Nothing&) {
  theta = t;
}
GRADUS_HD inline void put_master(float t, float& theta, f16& p) { theta = t, p = f16(t); }
GRADUS_HD inline void put_master(float t, bf16& p, int16_t& low) {
  p = bf16(t), low = low_of(t, p);
}

template <class A, class B, class W, class Rule, class... State>
void update_row(int64_t n, const Rule& rule, A* __restrict a, B* __restrict b,
                const W* __restrict g, State* __restrict... state) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    B& second = b[std::is_same_v<B, Nothing> ? 0 : i];
    W theta = master_in(a[i], second);
    rule(theta, g[i], state[i]...);
    put_master(theta, a[i], second);
  }
}

#if defined(__CUDACC__)
template <int V, class T>
__device__ Pack<T, V> load(const T* p, int64_t i) {
  if constexpr (std::is_same_v<T, Nothing>)
    return {};
  else
    return *reinterpret_cast<const Pack<T, V>*>(p + i);
}
template <int V, class T>
__device__ void store(T* p, int64_t i, const Pack<T, V>& values) {
  if constexpr (!std::is_same_v<T, Nothing>) *reinterpret_cast<Pack<T, V>*>(p + i) = values;
}

/// Elements from segments.begin() on, V neighbours a thread. Segments and arrays are aligned to more
/// than V elements.
template <int V, class A, class B, class W, class Rule, class... State>
__global__ void __launch_bounds__(256)
    update_kernel(__grid_constant__ const Segments segments, Rule rule, const StepNumbers* numbers,
                  A* a, B* b, const W* g, State*... state) {
  const int64_t i = segments.at[0].begin + (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (i >= segments.at[segments.count - 1].end) return;
  auto update = [&](auto first, auto second, auto gradient,
                    auto... s) {  // by value: loaded at once
    if (!numbers->applied) return;
    rule.begin(*numbers, segments.holding(i));
#pragma unroll
    for (int j = 0; j < V; ++j) {
      W theta = master_in(first.v[j], second.v[j]);
      rule(theta, gradient.v[j], s.v[j]...);
      put_master(theta, first.v[j], second.v[j]);
    }
    store<V>(a, i, first), store<V>(b, i, second);
    (store<V>(state, i, s), ...);
  };
  update(load<V>(a, i), load<V>(b, i), load<V>(g, i), load<V>(state, i)...);
}
#endif

template <class A, class B, class W, class Rule, class... State>
void update_arrays(Device device, const Segments& segments, Rule rule, const StepNumbers* numbers,
                   A* a, B* b, const W* g, State*... state) {
#if defined(__CUDACC__)
  if (device.is_cuda()) {
    constexpr int V = 32 / sizeof(W);  // 16 bytes of 16-bit arrays
    const int64_t threads = (segments.end() - segments.begin()) / V;
    if (threads == 0) return;
    update_kernel<V><<<unsigned((threads + 255) / 256), 256, 0, cuda::stream(device)>>>(
        segments, rule, numbers, a, b, g, state...);
    return cuda::check_launch("optimizer kernel");
  }
#endif
  check(!device.is_cuda(), "an optimizer was compiled without CUDA");
  if (!numbers->applied) return;
  for (int k = 0; k < segments.count; ++k) {
    const Segment& group = segments.at[k];
    rule.begin(*numbers, group);
    parallel_for(group.end - group.begin, kGrain, [&](int64_t begin, int64_t end) {
      const int64_t first = group.begin + begin;
      update_row(end - begin, rule, a + first, std::is_same_v<B, Nothing> ? b : b + first,
                 g + first, (state + first)...);
    });
  }
}

template <class W, class Rule, class... Arena>
void update_segments(const FlatBuffer& flat, const Segments& segments, const Rule& rule,
                     const StepNumbers* numbers, const Arena&... state) {
  // Segments count elements of state arenas; gradients and parameters lie in the arena.
  const int64_t shift = segments.shift;
  const Range range{segments.begin() + shift, segments.end() + shift};
  // Of the parameters, those in the range alone are used: others may be on their way.
  const Tensor own = part_of(flat.parameters(), range);
  auto run = [&](auto* a, auto* b) {
    update_arrays(own.device(), segments, rule, numbers, a, b,
                  static_cast<const W*>(flat.gradients().template data<W>()) + shift,
                  state.template data<W>()...);
  };
  Nothing nothing;
  if (!flat.has_masters()) return run(own.template data<W>() - segments.begin(), &nothing);
  if constexpr (std::is_same_v<W, float>) {
    const Tensor& beside = flat.masters();
    if (own.dtype() == DType::bf16)
      run(own.data<bf16>() - segments.begin(), static_cast<int16_t*>(beside.raw()));
    else
      run(beside.data<float>(), own.data<f16>() - segments.begin());
  }
}

}  // namespace detail

/// Runs the rule on what is updated here of the groups [first, last) of `flat`, and the same places of the
/// state arenas, unless the step is skipped. W is the type of the masters.
template <class W, class Rule, class... Arena>
void fused_update(const FlatBuffer& flat, int first, int last, const Rule& rule,
                  const StepNumbers* numbers, const Arena&... state) {
  for (const Pass& pass : passes_of(flat, first, last)) {
    detail::update_segments<W>(flat, pass.segments, rule, numbers, state...);
    for (int b : pass.buckets)
      if (flat.when_updated) flat.when_updated(b);
  }
}

/// The same for all groups.
template <class W, class Rule, class... Arena>
void fused_update(const FlatBuffer& flat, const Rule& rule, const StepNumbers* numbers,
                  const Arena&... state) {
  fused_update<W>(flat, 0, int(flat.groups().size()), rule, numbers, state...);
}

/// f.operator()<W>() with the type of the masters, float or double.
template <class F>
void dispatch_masters(const FlatBuffer& flat, F&& f) {
  if (flat.gradients().dtype() == DType::f64)  // as wide as masters
    f.template operator()<double>();
  else
    f.template operator()<float>();
}

}  // namespace gradus::optim
