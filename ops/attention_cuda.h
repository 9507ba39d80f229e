#pragma once
// The rows of explicit attention on a GPU: what stands between the matrix products.
#if defined(__CUDACC__)
#include "core/cuda.h"
#include "core/dtype.h"
#include "core/index_map.h"
#include "core/random.h"

namespace gradus::attention_cuda {

/// Scores (B, H, Tq, Tk), contiguous; a mask that broadcasts to them; dropout by their element index in
/// the scores of all samples and heads.
struct Rows {
  int64_t rows, tk, tq, heads;
  double scale;
  bool causal;
  const uint8_t* visible;  // or null
  const void* added;       // in the type of the scores, or null
  int64_t strides[4];      // of the mask
  Philox stream;
  IndexMap head_rows;
  uint64_t threshold;  // 0: no dropout
  double keep_scale;

  __device__ int64_t columns(int64_t row) const {
    return causal ? min(tk, max(int64_t(0), row % tq + 1 + tk - tq)) : tk;
  }
  __device__ int64_t mask_row(int64_t row) const {
    int64_t i = row % tq, h = row / tq % heads, b = row / tq / heads;
    return b * strides[0] + h * strides[1] + i * strides[2];
  }
  /// Element 0 of a row of scores among all.
  __device__ uint64_t element(int64_t row) const {
    return (head_rows(uint64_t(row / tq)) * uint64_t(tq) + uint64_t(row % tq)) * uint64_t(tk);
  }
};

/// The fold of `v` over the block's threads, the same in each.
template <class A, class F>
__device__ A block_fold(A v, A neutral, F f) {
  __shared__ A parts[32];
  for (int step = 16; step; step /= 2) v = f(v, __shfl_xor_sync(~0u, v, step));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : neutral;
  for (int step = 16; step; step /= 2) v = f(v, __shfl_xor_sync(~0u, v, step));
  __syncthreads();
  return v;
}
struct Larger {
  template <class A>
  __device__ A operator()(A a, A b) const { return a > b ? a : b; }
};
struct Plus {
  template <class A>
  __device__ A operator()(A a, A b) const { return a + b; }
};

/// s: scores Q Kᵀ → P = softmax(scale · s + mask); dropped: P̃, if not null. One block a row.
template <class T>
__global__ void softmax_rows(const __grid_constant__ Rows p, const Compute<T>* s, T* probability,
                             T* dropped) {
  using A = Compute<T>;
  const A low = -A(INFINITY);
  int64_t row = blockIdx.x, columns = p.columns(row), mask = p.mask_row(row);
  const A* x = s + row * p.tk;
  T* P = probability + row * p.tk;
  auto score = [&](int64_t j) {
    A v = x[j] * A(p.scale);
    if (p.visible && !p.visible[mask + j * p.strides[3]]) v = low;
    if (p.added) v += A(static_cast<const T*>(p.added)[mask + j * p.strides[3]]);
    return v;
  };
  A m = low, l = 0;
  for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) m = Larger{}(score(j), m);
  m = block_fold(m, low, Larger{});
  if (m == low) m = 0;
  for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) l += exp(score(j) - m);
  l = block_fold(l, A(0), Plus{});
  A inverse = l == 0 ? A(0) : 1 / l;
  const uint64_t element = p.element(row);
  for (int64_t j = threadIdx.x; j < p.tk; j += blockDim.x) {
    A y = j < columns ? exp(score(j) - m) * inverse : A(0);
    P[j] = T(y);
    if (dropped)
      dropped[row * p.tk + j] =
          T(p.stream.keep(element + uint64_t(j), p.threshold) ? y * A(p.keep_scale) : A(0));
  }
}

/// dp: dO Vᵀ → dS = P ⊙ (m dP/(1 − p) − δ) · scale, δ = Σ P ⊙ m dP/(1 − p). ds may be dp.
template <class T>
__global__ void softmax_rows_backward(const __grid_constant__ Rows p, const T* probability,
                                      const Compute<T>* dp, T* ds) {
  using A = Compute<T>;
  int64_t row = blockIdx.x;
  const T* P = probability + row * p.tk;
  const A* x = dp + row * p.tk;
  const uint64_t element = p.element(row);
  auto gradient = [&](int64_t j) {
    if (!p.threshold) return x[j];
    return p.stream.keep(element + uint64_t(j), p.threshold) ? x[j] * A(p.keep_scale) : A(0);
  };
  A delta = 0;
  for (int64_t j = threadIdx.x; j < p.tk; j += blockDim.x)
    if (A(P[j]) != 0) delta += A(P[j]) * gradient(j);
  delta = block_fold(delta, A(0), Plus{});
  for (int64_t j = threadIdx.x; j < p.tk; j += blockDim.x)
    ds[row * p.tk + j] = T(A(P[j]) == 0 ? A(0) : A(P[j]) * (gradient(j) - delta) * A(p.scale));
}

/// y = m x / (1 − p) over the elements of the scores.
template <class T>
__global__ void drop_rows(const __grid_constant__ Rows p, const T* x, T* y) {
  using A = Compute<T>;
  const uint64_t element = p.element(blockIdx.x);
  for (int64_t j = threadIdx.x; j < p.tk; j += blockDim.x) {
    int64_t i = int64_t(blockIdx.x) * p.tk + j;
    y[i] = T(p.stream.keep(element + uint64_t(j), p.threshold) ? A(x[i]) * A(p.keep_scale) : A(0));
  }
}

}  // namespace gradus::attention_cuda
#endif
