#pragma once
// The online softmax of flash attention (derived in ops/flash_attention.cu) on tiles of scores as wgmma leaves
// them: a thread has two rows, g and g + 8 of its warp's sixteen, and element i belongs to row i / 2 % 2
// (ops/hopper_products.h).
//
// The maximum is let lag. Any m will do in P = 2^{cS − m} and l = Σ P, as long as nothing overflows: m is
// raised, and O and l rescaled, only where a row's maximum grew by more than 8. P ≤ 2⁸ is no less exact
// than P ≤ 1, and after the first tiles hardly a warp rescales at all.
#include "ops/exp2.h"
#include "ops/hopper.h"

#if defined(__CUDACC__)
#include <cfloat>

namespace gradus::flash_tiles {

#if defined(GRADUS_SM90A)

/// Over the four lanes that share a row.
__device__ inline float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
__device__ inline float row_sum(float v) {
  v += __shfl_xor_sync(~0u, v, 1);
  return v + __shfl_xor_sync(~0u, v, 2);
}

/// What a thread knows of its two rows. Element i of its scores belongs to row i / 2 % 2.
struct Softmax {
  float m[2] = {-FLT_MAX,
                -FLT_MAX};  // the maximum of c S, or a little less; finite without a key too
  float l[2] = {0, 0};      // Σ 2^{c S − m} over this thread's columns
  float shrink[2];          // what raise() multiplied l with

  /// Takes the scores s into account. True if o is to be multiplied with `shrink`, the same answer in all
  /// of the warp.
  template <int R>
  __device__ bool raise(const float (&s)[R], float c) {
    bool grows = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top[2] = {s[2 * half], s[2 * half + 1]};
#pragma unroll
      for (int n = 4; n < R; n += 4)
#pragma unroll
        for (int e = 0; e < 2; ++e) top[e] = fmaxf(top[e], s[n + 2 * half + e]);
      float next = row_max(fmaxf(top[0], top[1])) * c;
      bool far = next - m[half] > 8;
      next = far ? next : m[half];
      shrink[half] = far ? exp2_fast(m[half] - next) : 1;
      m[half] = next;
      l[half] *= shrink[half];
      grows = grows || far;
    }
    return __any_sync(~0u, grows);
  }

  /// s[i] ← 2^{c s[i] − m} for kFrom ≤ i < kTo.
  template <int kFrom, int kTo, int R>
  __device__ void exponentiate(float (&s)[R], float c) {
    float sum[2] = {0, 0};
#pragma unroll
    for (int i = kFrom; i < kTo; ++i)
      sum[i / 2 % 2] += s[i] = exp2_fast(fmaf(s[i], c, -m[i / 2 % 2]));
    l[0] += sum[0], l[1] += sum[1];
  }
};

/// o ← o · factor, row by row.
template <int R>
__device__ void scale_rows(float (&o)[R], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < R; ++i) o[i] *= factor[i / 2 % 2];
}

#endif  // GRADUS_SM90A

}  // namespace gradus::flash_tiles
#endif
