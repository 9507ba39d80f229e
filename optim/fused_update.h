#pragma once
// One pass over a range of the arenas: rule(θ_i, g_i, s_i, …) updates the master θ_i and the states
// s_i from the gradient g_i. Where parameters are 16 bits wide, the new θ_i is rounded into them in the
// same pass. What limits it is memory: each array is read and written once.
//
// A rule is a struct with   GRADUS_HD void operator()(W& theta, W g, W& s, …) const   where W is float
// or double. It writes a·b + c as fused(a, b, c), and no other product next to a sum, so that no
// compiler is free to round differently: an element's result is the same bit for bit on every path.
#include "core/elementwise.h"
#include "optim/flat_buffer.h"

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
/// n is a multiple of V, and all arrays are aligned to V elements.
template <int V, class W, class P, class Rule, class... State>
__global__ void update_kernel(int64_t n, Rule rule, P* copy, W* theta, const W* g,
                              State*... state) {
  int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (i >= n) return;
  auto at = [i](auto* p) -> auto& { return *reinterpret_cast<Pack<W, V>*>(p + i); };
  auto update = [&](Pack<W, V> t, Pack<W, V> gradient, auto... s) {
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
void update_arrays(Device device, int64_t n, const Rule& rule, P* copy, W* theta, const W* g,
                   State*... state) {
#if defined(__CUDACC__)
  if (device.is_cuda() && n > 0) {
    constexpr int V = 16 / sizeof(W);
    unsigned blocks = unsigned((n / V + 255) / 256);
    update_kernel<V><<<blocks, 256, 0, cuda::stream(device)>>>(n, rule, copy, theta, g, state...);
    return cuda::check_launch("optimizer kernel");
  }
#endif
  check(!device.is_cuda(), "an optimizer was compiled without CUDA");
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    update_row(end - begin, rule, std::is_same_v<P, NoCopy> ? copy : copy + begin, theta + begin,
               g + begin, (state + begin)...);
  });
}

}  // namespace detail

/// Runs the rule on a range of `flat` and of the state arenas. W is the type of the masters.
template <class W, class Rule, class... Arena>
void fused_update(const FlatBuffer& flat, FlatBuffer::Range range, const Rule& rule,
                  const Arena&... state) {
  (state.will_write("an optimizer's step"), ...);
  auto run = [&]<class P>(P* copy) {
    detail::update_arrays<W, P>(flat.parameters().device(), range.end - range.begin, rule,
                                copy ? copy + range.begin : copy,
                                flat.masters().template data<W>() + range.begin,
                                flat.gradients().template data<W>() + range.begin,
                                (state.template data<W>() + range.begin)...);
  };
  if (!flat.has_masters()) return run(static_cast<detail::NoCopy*>(nullptr));
  if constexpr (std::is_same_v<W, float>) {
    flat.masters().will_write("an optimizer's step");
    if (flat.parameters().dtype() == DType::bf16) return run(flat.parameters().data<bf16>());
    return run(flat.parameters().data<f16>());
  }
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
