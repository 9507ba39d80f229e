#pragma once
// Norms on a GPU: the row in registers, one pass over memory (see ops/row.h).
#include "ops/norm.h"
#include "ops/row.h"

#if defined(__CUDACC__)

namespace gradus::norm {

template <bool kCentred, class T, int kPacks>
__global__ void __launch_bounds__(512) forward_kernel(const Forward<T> f) {
  using A = Compute<T>;
  const Row<T, kPacks> gamma(f.gamma, f.n), beta(f.beta, f.n);
  for (int64_t r = first_row(); r < f.rows; r += row_step()) {
    const Row<T, kPacks> x(f.x + r * f.n, f.n);
    A m[1] = {0}, sums[2] = {0, 0};
    if (kCentred) {
      x.each([&](int64_t, A v) { m[0] += v; });
      join_row(Sum{}, m);
      m[0] /= A(f.n);
    }
    x.each([&](int64_t, A v) { sums[0] += v - m[0], sums[1] += (v - m[0]) * (v - m[0]); });
    join_row(Sum{}, sums);
    const Moments<A> row = moments<kCentred>(m[0], sums[0], sums[1], f.n, f.epsilon);
    if (threadIdx.x == 0) f.moments[r] = row;
    x.store(f.y + r * f.n, Normalise<A>{row}, gamma, beta);
  }
}

/// One sum for each column that a thread owns: in registers where its row is, else in memory.
template <class A, int kSlots>
struct Columns {
  A held[kSlots] = {};
  __device__ Columns(A*, int64_t) {}
  __device__ A& operator[](int64_t slot) { return held[slot]; }
};
template <class A>
struct Columns<A, 0> {
  A* at;
  __device__ Columns(A* to, int64_t n) : at(to) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) at[i] = 0;
  }
  __device__ A& operator[](int64_t column) { return at[column]; }
};

/// Each block makes one part. Short rows: a warp a row, four packs a thread. Longer ones: two packs,
/// since a thread also holds two sums for each of its columns.
template <class T>
constexpr int kShortPacks = sizeof(T) == 8 ? 0 : 4;
template <class T>
constexpr int kLongPacks = sizeof(T) == 8 ? 0 : 2;
template <class T>
constexpr int64_t kShortRow = 32 * 4 * 16 / int(sizeof(T));

template <bool kCentred, class T, int kPacks>
__global__ void __launch_bounds__(kPacks == 4 ? 128 : 512) backward_kernel(const Backward<T> b) {
  using A = Compute<T>;
  using R = Row<T, kPacks>;
  A* part = b.parts + blockIdx.x * 2 * b.n;
  Columns<A, R::kSlots> dgamma(part, b.n), dbeta(part + b.n, b.n);
  const R gamma(b.gamma, b.n);
  for (int64_t r = first_row(); r < b.rows; r += row_step()) {
    if constexpr (kPacks == 0) __syncthreads();  // a streamed row may give a column to another thread
    const R x(b.x + r * b.n, b.n), dy(b.dy + r * b.n, b.n);
    const Moments<A> row = b.moments[r];
    A sums[2] = {0, 0};  // of g, and of g ⊙ x̂
    x.each(
        [&](int64_t slot, A x_i, A dy_i, A gamma_i) {
          const A normal = (x_i - row.mean) * row.r;
          sums[0] += gamma_i * dy_i;
          sums[1] += gamma_i * dy_i * normal;
          dgamma[slot] += dy_i * normal;
          dbeta[slot] += dy_i;
        },
        dy, gamma);
    join_row(Sum{}, sums);
    const A mean_g = kCentred ? sums[0] / A(b.n) : A(0);
    x.store(b.dx + r * b.n, Differentiate<A>{row, mean_g, sums[1] / A(b.n)}, dy, gamma);
  }
  if constexpr (kPacks > 0) {
    for (int warp = 0; warp < int(blockDim.y); ++warp) {  // the rows of the block, in order
      if (int(threadIdx.y) == warp)
        gamma.each([&](int64_t slot, A) {
          A* to = part + R::column(int(slot));
          to[0] = (warp ? to[0] : A(0)) + dgamma[slot];
          to[b.n] = (warp ? to[b.n] : A(0)) + dbeta[slot];
        });
      __syncthreads();
    }
  }
}

/// 32 columns a block: each of its 32 warps sums every 32nd part, then warp 0 sums the warps.
template <class A, class To>
__global__ void __launch_bounds__(1024) sum_parts_kernel(const SumOfParts<A, To> s) {
  __shared__ A sums[32][33];
  const int64_t i = int64_t(blockIdx.x) * 32 + threadIdx.x;
  A sum = 0;
  for (int64_t p = threadIdx.y; i < s.n && p < s.count; p += 32) sum += s.part[p * s.step + i];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || i >= s.n) return;
  for (int w = 1; w < 32; ++w) sum += sums[w][threadIdx.x];
  s.write(i, sum);
}

template <bool kCentred, class T>
void forward_cuda(Device device, const Forward<T>& f) {
  constexpr int kPacks = sizeof(T) == 8 ? 0 : 4;
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = row_launch<T, kPacks>(f.rows, f.n, 512, 16 * cuda::multiprocessors(device),
                                      {f.x, f.gamma, f.beta, f.y});
  auto kernel = l.held ? forward_kernel<kCentred, T, kPacks> : forward_kernel<kCentred, T, 0>;
  kernel<<<l.blocks, l.threads, 0, stream>>>(f);
  cuda::check_launch("norm kernel");
}

template <class T>
RowLaunch backward_launch(const Backward<T>& b) {
  // Three blocks of 128 threads on each of the 132 multiprocessors of an H200, or one of 512. Not
  // asked of the device: sums would differ between machines.
  constexpr int64_t kMultiprocessors = 132, kThreads = 384;
  std::initializer_list<const void*> pointers = {b.x, b.dy, b.gamma, b.dx};
  RowLaunch l = b.n <= kShortRow<T>
                    ? row_launch<T, kShortPacks<T>>(b.rows, b.n, 32, b.rows, pointers)
                    : row_launch<T, kLongPacks<T>>(b.rows, b.n, 512, b.rows, pointers);
  if (!l.held) l.threads.y = 1;  // a block sums its part in memory: one row at a time
  int64_t a_processor = std::max<int64_t>(1, kThreads / (l.threads.x * l.threads.y));
  int64_t rows = (b.rows + l.threads.y - 1) / l.threads.y;
  l.blocks = unsigned(std::min(rows, kMultiprocessors * a_processor));
  return l;
}

template <class T>
int64_t parts_cuda(const Backward<T>& b) {
  return backward_launch(b).blocks;
}

template <bool kCentred, class T>
void backward_cuda(Device device, const Backward<T>& b) {
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = backward_launch(b);
  auto kernel = !l.held               ? backward_kernel<kCentred, T, 0>
                : b.n <= kShortRow<T> ? backward_kernel<kCentred, T, kShortPacks<T>>
                                      : backward_kernel<kCentred, T, kLongPacks<T>>;
  kernel<<<l.blocks, l.threads, 0, stream>>>(b);
  cuda::check_launch("norm backward kernel");
}

template <class A, class To>
void sum_parts_cuda(Device device, const SumOfParts<A, To>& s) {
  cudaStream_t stream = cuda::stream(device);
  sum_parts_kernel<<<unsigned((s.n + 31) / 32), dim3(32, 32), 0, stream>>>(s);
  cuda::check_launch("sum of parts");
}

}  // namespace gradus::norm

#endif
