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

struct NoCopy {};  // in place of a 16-bit type: the masters are the parameters

template <class W, class P, class Rule, class... State>
void update_row(int64_t n, const Rule& rule, P* __restrict copy, W* __restrict theta,
                const W* __restrict g, State* __restrict... state) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    rule(theta[i], g[i], state[i]...);
    if constexpr (!std::is_same_v<P, NoCopy>) copy[i] = P(theta[i]);
  }
}

#if defined(__CUDACC__)
/// Elements from segments.begin() on, V neighbours a thread. Segments and arrays are aligned to more
/// than V elements.
template <int V, class W, class P, class Rule, class... State>
__global__ void __launch_bounds__(256)
    update_kernel(__grid_constant__ const Segments segments, Rule rule, const StepNumbers* numbers,
                  P* copy, W* theta, const W* g, State*... state) {
  const int64_t i = segments.at[0].begin + (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (i >= segments.at[segments.count - 1].end) return;
  auto at = [i](auto* p) -> auto& { return *reinterpret_cast<Pack<W, V>*>(p + i); };
  auto update = [&](Pack<W, V> t, Pack<W, V> gradient, auto... s) {  // by value: loaded at once
    if (!numbers->applied) return;
    rule.begin(*numbers, segments.holding(i));
#pragma unroll
    for (int j = 0; j < V; ++j) rule(t.v[j], gradient.v[j], s.v[j]...);
    at(theta) = t;
    ((at(state) = s), ...);
    if constexpr (!std::is_same_v<P, NoCopy>) {
      Pack<P, V> rounded;
#pragma unroll
      for (int j = 0; j < V; ++j) rounded.v[j] = P(t.v[j]);
      *reinterpret_cast<Pack<P, V>*>(copy + i) = rounded;
    }
  };
  update(at(theta), *reinterpret_cast<const Pack<W, V>*>(g + i), at(state)...);
}
#endif

template <class W, class P, class Rule, class... State>
void update_arrays(Device device, const Segments& segments, Rule rule, const StepNumbers* numbers,
                   P* copy, W* theta, const W* g, State*... state) {
#if defined(__CUDACC__)
  if (device.is_cuda()) {
    constexpr int V = 16 / sizeof(W);
    const int64_t threads = (segments.end() - segments.begin()) / V;
    if (threads == 0) return;
    update_kernel<V><<<unsigned((threads + 255) / 256), 256, 0, cuda::stream(device)>>>(
        segments, rule, numbers, copy, theta, g, state...);
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
      update_row(end - begin, rule, std::is_same_v<P, NoCopy> ? copy : copy + first, theta + first,
                 g + first, (state + first)...);
    });
  }
}

template <class W, class Rule, class... Arena>
void update_segments(const FlatBuffer& flat, const Segments& segments, const Rule& rule,
                     const StepNumbers* numbers, const Arena&... state) {
  // Segments count elements of state arenas; these three lie in the arena.
  const int64_t shift = segments.shift;
  const Range range{segments.begin() + shift, segments.end() + shift};
  // Of the parameters, those in the range alone are used: others may be on their way.
  const Tensor own = part_of(flat.parameters(), range);
  auto run = [&]<class P>(W* theta, P* copy) {
    update_arrays<W, P>(own.device(), segments, rule, numbers, copy, theta,
                        flat.gradients().template data<W>() + shift, state.template data<W>()...);
  };
  if (!flat.has_masters())
    return run(own.template data<W>() - segments.begin(), static_cast<NoCopy*>(nullptr));
  W* masters = flat.masters().template data<W>();
  if constexpr (std::is_same_v<W, float>) {
    if (own.dtype() == DType::bf16) return run(masters, own.data<bf16>() - segments.begin());
    return run(masters, own.data<f16>() - segments.begin());
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
  if (flat.masters().dtype() == DType::f64)
    f.template operator()<double>();
  else
    f.template operator()<float>();
}

}  // namespace gradus::optim
