#pragma once
// Cross-entropy on a GPU: which kernel takes which rows, and the small kernels beside them. Rows whose gradient
// is made at once are held in shared memory (ops/cross_entropy_held.h); others are read in each pass.
#include "ops/cross_entropy_held.h"

#if defined(__CUDACC__)

namespace gradus::entropy {

/// Rows read from memory in each pass.
template <class T, class I>
__global__ void __launch_bounds__(256)
    streamed_kernel(const Rows<T, I> in, cuda::DeviceError* error) {
  using A = Compute<T>;
  for (int64_t r = first_row(); r < in.rows; r += row_step()) {
    if (!in.has_loss(r)) {
      skip_row(in, r, error);
      continue;
    }
    const Row<T, 0> row(in.z + r * in.n, in.n);
    const int64_t target = in.target[r];
    const A z_t = A(in.z[r * in.n + target]);
    Running<T> sums;
    row.each([&](int64_t, A z) {
      sums.take(z);
      sums.sum_z += z;
    });
    sums.join();
    if (threadIdx.x == 0) in.write(r, sums.m, sums.s, sums.sum_z, z_t);
    if (!in.dz) continue;
    const Gradient<A> gradient(in, sums.s);
    row.store(in.dz + r * in.n,
              [&](int64_t j, A z) { return gradient(exp_for<T>(z - sums.m), j == target); });
  }
}

template <class T, class I>
__global__ void __launch_bounds__(256)
    backward_kernel(const Rows<T, I> in, const RowGradient<Compute<T>> dloss, T* dz) {
  using A = Compute<T>;
  for (int64_t r = first_row(); r < in.rows; r += row_step()) {
    const Row<T, 0> z(in.z + r * in.n, in.n);
    if (in.scale[r].log_sum == -kInfinity<A>)
      z.store(dz + r * in.n, [](int64_t, A) { return A(0); });
    else
      z.store(dz + r * in.n, Differentiate<A>(in, r, dloss(r)));
  }
}

/// One block: thread t takes rows t, t + 1024, …; then the threads are joined.
template <class A, class I>
__global__ void __launch_bounds__(1024) factor_kernel(const Total<A, I> t) {
  double count[1] = {0};
  if (t.mean)
    for (int64_t r = threadIdx.x; r < t.rows; r += blockDim.x)
      count[0] += int64_t(t.target[r]) != t.ignored;
  join_row(Sum{}, count);
  if (threadIdx.x == 0) t.write_factor(count[0]);
}
template <class A, class I>
__global__ void __launch_bounds__(1024) total_kernel(const Total<A, I> t) {
  double sums[2] = {0, 0};
  for (int64_t r = threadIdx.x; r < t.rows; r += blockDim.x) {
    sums[0] += double(t.loss[r]);
    sums[1] += int64_t(t.target[r]) != t.ignored;
  }
  join_row(Sum{}, sums);
  if (threadIdx.x == 0) t.write(sums[0], sums[1]);
}

/// to ← f from, V neighbours a thread. Nothing to do where f = 1 and `to` is `from`.
template <int V, class T>
__global__ void __launch_bounds__(256)
    multiply_kernel(int64_t n, const Compute<T>* factor, const T* from, T* to) {
  using A = Compute<T>;
  const A f = *factor;
  if (f == 1 && from == to) return;
  const int64_t step = int64_t(gridDim.x) * blockDim.x * V;
  for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V; i < n; i += step) {
    Pack<T, V> pack = load_pack<T, V>(from + i);
#pragma unroll
    for (int j = 0; j < V; ++j) pack.v[j] = T(f * A(pack.v[j]));
    store_pack(to + i, pack);
  }
}

template <class T, class I>
void launch_streamed(Device device, const Rows<T, I>& in) {
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = row_launch<T, 0>(in.rows, in.n, 256, 1 << 30, {});
  streamed_kernel<<<l.blocks, l.threads, 0, stream>>>(in, cuda::error_record(device));
}

template <class T, class I>
void forward_cuda(Device device, const Rows<T, I>& in) {
  const bool packed = in.dz && aligned_to(16, in.z) && aligned_to(16, in.dz);
  packed ? launch_held(device, in) : launch_streamed(device, in);
  cuda::check_launch("cross-entropy kernel");
}

template <class T, class I>
void backward_cuda(Device device, const Rows<T, I>& in, RowGradient<Compute<T>> dloss, T* dz) {
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = row_launch<T, 0>(in.rows, in.n, 256, 1 << 30, {});
  backward_kernel<<<l.blocks, l.threads, 0, stream>>>(in, dloss, dz);
  cuda::check_launch("cross-entropy backward kernel");
}

template <class A, class I>
void factor_cuda(Device device, const Total<A, I>& t) {
  factor_kernel<<<1, 1024, 0, cuda::stream(device)>>>(t);
  cuda::check_launch("count of targets");
}
template <class A, class I>
void total_cuda(Device device, const Total<A, I>& t) {
  total_kernel<<<1, 1024, 0, cuda::stream(device)>>>(t);
  cuda::check_launch("sum of losses");
}

template <class T>
void multiply_cuda(Device device, int64_t n, const Compute<T>* factor, const T* from, T* to) {
  constexpr int V = kPackSize<T>;
  cudaStream_t stream = cuda::stream(device);
  const bool wide = n % V == 0 && aligned_to(16, from) && aligned_to(16, to);
  const int64_t blocks = (n / (wide ? V : 1) + 255) / 256;
  const auto grid = unsigned(std::min<int64_t>(blocks, 16 * cuda::multiprocessors(device)));
  (wide ? multiply_kernel<V, T> : multiply_kernel<1, T>)<<<grid, 256, 0, stream>>>(n, factor, from,
                                                                                   to);
  cuda::check_launch("product with a number");
}

}  // namespace gradus::entropy

#endif
