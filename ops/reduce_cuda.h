#pragma once
// The CUDA side of reduce (see ops/reduce.h).
//
//   rows      a group of 1 … 32 threads, or a block, folds an output: neighbouring threads read
//             neighbouring elements, 16 bytes each where they are contiguous
//   columns   a thread owns 16 bytes of neighbouring outputs and walks down the rows
//
// Where there are too few outputs to fill the device, each is cut into `splits` parts, whose states a
// second kernel folds. No atomics: the order is fixed by the sizes.
#include "ops/reduce_cpu.h"

#if defined(__CUDACC__)

namespace gradus::detail {

inline constexpr int kReduceThreads = 256;
inline constexpr int64_t kReduceBlocks = 1024;  // enough to fill any device
inline constexpr int64_t kColumnBlocks = 396;   // the same where a thread has kUnderWay loads
inline constexpr int kUnderWay = 8;

template <class S>
__device__ S shuffle_down(S s, int by, int width) {
  static_assert(sizeof(S) % 4 == 0);
  int words[sizeof(S) / 4];
  memcpy(words, &s, sizeof(S));
#pragma unroll
  for (int& w : words) w = __shfl_down_sync(~0u, w, by, width);
  memcpy(&s, words, sizeof(S));
  return s;
}

/// The states of the blockDim.x threads of a row of the block, in the first of them.
template <class F, class State = typename F::State>
__device__ State fold_group(const F& f, State s) {
  int width = ::min(int(blockDim.x), 32);
  for (int by = width / 2; by > 0; by /= 2) s = f.combine(s, shuffle_down(s, by, width));
  if (blockDim.x <= 32) return s;
  __shared__ State warps[kReduceThreads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < int(blockDim.x) / 32; ++i) s = f.combine(s, warps[i]);
  return s;
}

/// [begin, end) of a contiguous run that starts at x, a multiple of V from it.
template <class F, class T, class State = typename F::State>
__device__ State fold_run(const F& f, State s, const T* x, int64_t begin, int64_t end) {
  constexpr int V = 16 / sizeof(T);
  int64_t i = begin + threadIdx.x;
  if (uintptr_t(x) % 16 == 0) {
    State lane[V];
#pragma unroll
    for (int j = 0; j < V; ++j) lane[j] = f.identity();
    int64_t packs = (end - begin) / V;
#pragma unroll 4
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      auto pack = reinterpret_cast<const Pack<T, V>*>(x + begin)[p];
#pragma unroll
      for (int j = 0; j < V; ++j)
        lane[j] = f.add(lane[j], Compute<T>(pack.v[j]), begin + p * V + j);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) s = f.combine(s, lane[j]);
    i += packs * V;
  }
  for (; i < end; i += blockDim.x) s = f.add(s, Compute<T>(x[i]), i);
  return s;
}

/// Part s of output o is the item o · splits + s; `chunk` elements are a part.
template <class F, class T, class Y>
__global__ void reduce_rows_kernel(__grid_constant__ const ReduceWalk w, F f, const T* x,
                                   int splits, int64_t chunk, Results<Y> y,
                                   typename F::State* parts) {
  int64_t item = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  bool active = item < w.kept.numel * splits;  // the others take part in the shuffles
  auto s = f.identity();
  if (active) {
    int64_t begin = item % splits * chunk, end = ::min(begin + chunk, w.reduced.numel);
    x += place(w.kept, item / splits);
    if (w.reduced.rank == 1 && w.reduced_step() == 1)
      s = fold_run(f, s, x, begin, end);
    else
      for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
        s = f.add(s, Compute<T>(x[place(w.reduced, i)]), i);
  }
  s = fold_group(f, s);
  if (!active || threadIdx.x != 0) return;
  if (splits == 1)
    y.put(item, f.finish(s));
  else
    parts[item] = s;
}

/// The states that the threads of a column of the block have for each of V outputs, in row 0.
template <int V, class F, class State = typename F::State>
__device__ void fold_block_column(const F& f, State (&s)[V]) {
  __shared__ State rows[V][kReduceThreads];
  int at = threadIdx.y * blockDim.x + threadIdx.x;
  for (int j = 0; j < V; ++j) rows[j][at] = s[j];
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
    for (int j = 0; j < V; ++j)
      rows[j][at] = f.combine(rows[j][at], rows[j][at + half * blockDim.x]);
  }
  for (int j = 0; j < V; ++j) s[j] = rows[j][at];
}

/// Adds rows first, first + gap, … below last, each of V neighbouring columns and `step` from the
/// other, to s. Memory answers after the time of some hundred additions: kUnderWay loads are asked for
/// before the first is used.
template <int V, class F, class T, class State = typename F::State>
__device__ void fold_rows(const F& f, State (&s)[V], const T* x, int64_t step, int64_t first,
                          int64_t last, int gap) {
  auto row = [&](int64_t r) { return *reinterpret_cast<const Pack<T, V>*>(x + r * step); };
  auto add = [&](const Pack<T, V>& pack, int64_t r) {
#pragma unroll
    for (int j = 0; j < V; ++j) s[j] = f.add(s[j], Compute<T>(pack.v[j]), r);
  };
  int64_t r = first;
  for (; r + (kUnderWay - 1) * gap < last; r += kUnderWay * gap) {
    Pack<T, V> packs[kUnderWay];
#pragma unroll
    for (int u = 0; u < kUnderWay; ++u) packs[u] = row(r + u * gap);
#pragma unroll
    for (int u = 0; u < kUnderWay; ++u) add(packs[u], r + u * gap);
  }
  for (; r < last; r += gap) add(row(r), r);
}

/// Block (tile of columns, split, outer): rows [split · chunk, …) of blockDim.x · V columns. `wide`:
/// all places are multiples of V, so that V columns are one load; else a thread's columns lie
/// blockDim.x apart. Part s of column c lies at parts[(outer · splits + s) · columns + c].
template <class F, class T, class Y>
__global__ void __launch_bounds__(kReduceThreads, 3)
    reduce_columns_kernel(__grid_constant__ const ReduceWalk w, F f, const T* x, bool wide,
                          int64_t tiles, int splits, int64_t chunk, Results<Y> y,
                          typename F::State* parts) {
  constexpr int V = 16 / sizeof(T);
  int64_t columns = w.columns(), tile = blockIdx.x % tiles, part = blockIdx.x / tiles;
  int64_t outer = part / splits, first = part % splits * chunk;
  int64_t last = ::min(first + chunk, w.reduced.numel), step = w.kept_step();
  int64_t c = tile * blockDim.x * V + threadIdx.x * (wide ? V : 1), gap = wide ? 1 : blockDim.x;
  x += place(w.kept, outer * columns);
  typename F::State s[V];
#pragma unroll
  for (int j = 0; j < V; ++j) s[j] = f.identity();
  if (wide && c < columns && w.reduced.rank == 1) {
    fold_rows(f, s, x + c, w.reduced_step(), first + threadIdx.y, last, int(blockDim.y));
  } else if (wide && c < columns) {
    for (int64_t r = first + threadIdx.y; r < last; r += blockDim.y)
      fold_rows(f, s, x + c + place(w.reduced, r), 0, r, r + 1, 1);
  } else if (!wide) {
    for (int64_t r = first + threadIdx.y; r < last; r += blockDim.y) {
      const T* row = x + place(w.reduced, r);
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (c + j * gap < columns) s[j] = f.add(s[j], Compute<T>(row[(c + j * gap) * step]), r);
    }
  }
  fold_block_column(f, s);
  for (int j = 0; j < V; ++j) {
    if (threadIdx.y != 0 || c + j * gap >= columns) continue;
    if (splits == 1)
      y.put(outer * columns + c + j * gap, f.finish(s[j]));
    else
      parts[part * columns + c + j * gap] = s[j];
  }
}

/// y_o ← the parts of output o = (outer, c), laid out (outer, splits, columns). Threads along x have
/// outputs of their own, those along y share one.
template <class F, class Y>
__global__ void reduce_parts_kernel(F f, int64_t outputs, int64_t columns, int splits, Results<Y> y,
                                    const typename F::State* parts) {
  int64_t o = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  typename F::State s[1] = {f.identity()};
  if (o < outputs) {
    parts += o / columns * splits * columns + o % columns;
#pragma unroll 4
    for (int i = threadIdx.y; i < splits; i += blockDim.y)
      s[0] = f.combine(s[0], parts[i * columns]);
  }
  fold_block_column(f, s);
  if (o < outputs && threadIdx.y == 0) y.put(o, f.finish(s[0]));
}

/// The smallest power of two ≥ n, at most `limit`.
inline int power_of_two(int64_t n, int limit) {
  int p = 1;
  while (p < n && p < limit) p *= 2;
  return p;
}

/// Memory for the states of the parts, in stream order like all tensors.
template <class State>
Tensor scratch(int64_t n, Device device) {
  return empty({n * int64_t(sizeof(State))}, DType::u8, device);
}

template <class F, class Y>
void cuda_fold_parts(cudaStream_t stream, const F& f, int64_t outputs, int64_t columns, int splits,
                     const Results<Y>& y, const typename F::State* parts) {
  dim3 block(unsigned(power_of_two(columns, 8)));  // 32 bytes, what memory gives at once
  block.y = kReduceThreads / block.x;
  reduce_parts_kernel<<<unsigned(blocks_of(outputs, block.x)), block, 0, stream>>>(
      f, outputs, columns, splits, y, parts);
}

template <class F, class T, class Y>
void cuda_reduce_rows(Device device, const ReduceWalk& w, const F& f, const T* x,
                      const Results<Y>& y) {
  constexpr int64_t V = 16 / sizeof(T);
  using State = typename F::State;
  int64_t n = w.reduced.numel, outputs = w.kept.numel;
  dim3 block(n > 1024 ? kReduceThreads : power_of_two(blocks_of(n, V), 32));
  block.y = kReduceThreads / block.x;
  int64_t wanted = std::min(kReduceBlocks / outputs, n / (4 * kReduceThreads * V));
  int64_t chunk = blocks_of(blocks_of(n, std::max<int64_t>(wanted, 1)), V) * V;
  int splits = n ? int(blocks_of(n, chunk)) : 1;
  Tensor parts = scratch<State>(splits > 1 ? outputs * splits : 0, device);
  auto* p = static_cast<State*>(parts.raw());
  cudaStream_t stream = cuda::stream(device);
  unsigned grid = unsigned(blocks_of(outputs * splits, block.y));
  reduce_rows_kernel<<<grid, block, 0, stream>>>(w, f, x, splits, chunk, y, p);
  if (splits > 1) cuda_fold_parts(stream, f, outputs, 1, splits, y, p);
}

/// Every place that w leads to is a multiple of 16 bytes, and columns are neighbours.
template <class T>
bool places_are_wide(const ReduceWalk& w, const T* x) {
  constexpr int64_t V = 16 / sizeof(T);
  bool wide = aligned_to(16, x) && w.kept_step() == 1 && w.columns() % V == 0;
  for (int d = 0; d + 1 < w.kept.rank; ++d) wide = wide && w.kept.strides[0][d] % V == 0;
  for (int d = 0; d < w.reduced.rank; ++d) wide = wide && w.reduced.strides[0][d] % V == 0;
  return wide;
}

template <class F, class T, class Y>
void cuda_reduce_columns(Device device, const ReduceWalk& w, const F& f, const T* x,
                         const Results<Y>& y) {
  constexpr int64_t V = 16 / sizeof(T);
  using State = typename F::State;
  int64_t rows = w.reduced.numel, columns = w.columns(), outer = w.kept.numel / columns;
  dim3 block(unsigned(power_of_two(blocks_of(columns, V), 32)));
  block.y = kReduceThreads / block.x;
  while (block.y * kUnderWay > rows && block.y > 1 &&
         blocks_of(columns, 2 * block.x * V) * outer >= kColumnBlocks)
    block.x *= 2, block.y /= 2;  // few rows, many columns
  int64_t tiles = blocks_of(columns, block.x * V);
  int64_t wanted = std::min(kColumnBlocks / (tiles * outer), rows / (block.y * kUnderWay));
  int64_t chunk = blocks_of(rows, std::max<int64_t>(wanted, 1));
  int splits = int(blocks_of(rows, chunk));
  Tensor parts = scratch<State>(splits > 1 ? w.kept.numel * splits : 0, device);
  auto* p = static_cast<State*>(parts.raw());
  cudaStream_t stream = cuda::stream(device);
  reduce_columns_kernel<<<unsigned(tiles * splits * outer), block, 0, stream>>>(
      w, f, x, places_are_wide(w, x), tiles, splits, chunk, y, p);
  if (splits > 1) cuda_fold_parts(stream, f, w.kept.numel, columns, splits, y, p);
}

template <class F, class T, class Y>
void cuda_reduce(Device device, const ReduceWalk& w, const F& f, const T* x, const Results<Y>& y) {
  if (w.by_columns() && w.reduced.numel > 0)
    cuda_reduce_columns(device, w, f, x, y);
  else
    cuda_reduce_rows(device, w, f, x, y);
  cuda::check_launch("reduce kernel");
}

}  // namespace gradus::detail

#endif
