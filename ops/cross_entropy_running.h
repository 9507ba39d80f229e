#pragma once
// m and s of a row of logits while they go by (ops/cross_entropy.h), each thread with some of them.
#include "ops/cross_entropy.h"
#include "ops/row_sums.h"

#if defined(__CUDACC__)

namespace gradus::entropy {

/// The m and s of a thread: it keeps the maximum of what it has seen and s relative to it. Starting at
/// the lowest number instead of −∞ avoids ∞ − ∞.
template <class T>
struct Running {
  using A = Compute<T>;
  A m = std::numeric_limits<A>::lowest(), s = 0, sum_z = 0;

  __device__ void raise(A z) {
    if (!(z > m)) return;
    s *= exp_for<T>(m - z);  // a larger z makes s smaller
    m = z;
  }
  /// raise(z), and z added, by one power and without a branch.
  __device__ void take(A z) {
    const A e = exp_for<T>(z > m ? m - z : z - m);
    s = z > m ? s * e + 1 : s + e;
    m = z > m ? z : m;
  }

  /// All threads get the same.
  __device__ void join() {
    A largest[1] = {m}, sums[2] = {s, sum_z};
    join_row(Largest{}, largest);
    sums[0] *= exp_for<T>(m - largest[0]);  // NaN if the largest is ∞
    join_row(Sum{}, sums);
    m = largest[0], s = sums[0], sum_z = sums[1];
  }
};

/// Row r has no loss: its target is ignored or invalid.
template <class T, class I>
__device__ void skip_row(const Rows<T, I>& in, int64_t r, cuda::DeviceError* error) {
  if (in.dz)
    for (int64_t j = threadIdx.x; j < in.n; j += blockDim.x) in.dz[r * in.n + j] = T(Compute<T>(0));
  if (threadIdx.x != 0) return;
  in.write_uncounted(r);
  if (in.counts(r)) cuda::report_index(error, "cross_entropy", r, int64_t(in.target[r]), in.n);
}

}  // namespace gradus::entropy

#endif
