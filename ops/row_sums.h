#pragma once
// Sums and maxima over the threads that share a row (ops/row.h): first among the 32 lanes of each warp, by
// exchange of registers, then among the warps, by shared memory.
#include "ops/row.h"

#if defined(__CUDACC__)

namespace gradus {

struct Sum {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
/// A NaN loses against a number: who cares for NaN looks at the sum that follows.
struct Largest {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return b > a ? b : a;
  }
};

/// Joins N values over the threads of each row (all threads of the block take part); each thread gets
/// the same result. The order is fixed by the width alone, so equal rows give equal bits.
template <class Join, int N, class A>
__device__ void join_row(Join join, A (&v)[N]) {
  auto among = [&](int lanes) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = join(v[i], __shfl_xor_sync(~0u, v[i], distance));
    }
  };
  among(32);
  if (blockDim.x == 32) return;
  __shared__ A parts[N][32];
  const int warps = int(blockDim.x) / 32, warp = int(threadIdx.x) / 32,
            lane = int(threadIdx.x) % 32;
  __syncthreads();  // everyone is done with the parts of the call before
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (lane == 0) parts[i][warp] = v[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = parts[i][lane % warps];
  among(warps);
}

/// The same sums by one barrier a call, for rows of any number of warps: each of two memories is used
/// in every other call, and whoever writes one has seen all others read it.
template <class A>
class RowSums {
 public:
  template <int N>
  __device__ void operator()(A (&v)[N]) {
    static_assert(N <= 2);
    add_lanes(v);
    if (blockDim.x == 32) return;
    const int warps = int(blockDim.x) / 32, warp = int(threadIdx.x) / 32,
              lane = int(threadIdx.x) % 32;
    A(*row)[2] = memory() + (turn_ ^= kWarps) + int(threadIdx.y) * warps;
    if (lane == 0)
#pragma unroll
      for (int i = 0; i < N; ++i) row[warp][i] = v[i];
    sync_row();
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = lane < warps ? row[lane][i] : A(0);
    add_lanes(v);
  }

 private:
  static constexpr int kWarps = 32;  // of a block, at most

  template <int N>
  static __device__ void add_lanes(A (&v)[N]) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] += __shfl_xor_sync(~0u, v[i], distance);
  }
  /// Of each warp, twice. (One for all N: it is not in the template.)
  static __device__ A (*memory())[2] {
    __shared__ A parts[2 * kWarps][2];
    return parts;
  }
  int turn_ = 0;
};

}  // namespace gradus

#endif
