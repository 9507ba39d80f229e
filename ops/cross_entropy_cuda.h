#pragma once
// Cross-entropy on a GPU: one pass over the logits forward, one backward.
#include "ops/cross_entropy.h"
#include "ops/row.h"

#if defined(__CUDACC__)

namespace gradus::entropy {

/// One pass: a thread keeps the maximum m of what it has seen and s relative to it. A larger z makes
/// s smaller by e^{m − z}. Starting at the lowest number instead of −∞ avoids ∞ − ∞.
template <class T, class I>
__global__ void __launch_bounds__(256)
    forward_kernel(const Rows<T, I> in, cuda::DeviceError* error) {
  using A = Compute<T>;
  for (int64_t r = first_row(); r < in.rows; r += row_step()) {
    if (!in.counts(r) || !in.in_range(r)) {
      if (threadIdx.x != 0) continue;
      in.write_uncounted(r);
      if (in.counts(r)) cuda::report_index(error, "cross_entropy", r, int64_t(in.target[r]), in.n);
      continue;
    }
    A m[1] = {std::numeric_limits<A>::lowest()}, sums[2] = {0, 0};
    Row<T, 0>(in.z + r * in.n, in.n).each([&](int64_t, A z) {
      const A e = math::exp(z > m[0] ? m[0] - z : z - m[0]);
      sums[0] = z > m[0] ? sums[0] * e + 1 : sums[0] + e;
      sums[1] += z;
      m[0] = z > m[0] ? z : m[0];
    });
    const A own = m[0];
    join_row(Largest{}, m);
    sums[0] *= math::exp(own - m[0]);  // NaN if the largest is ∞
    join_row(Sum{}, sums);
    if (threadIdx.x == 0) in.write(r, m[0], sums[0], sums[1]);
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
__global__ void __launch_bounds__(1024) total_kernel(const Total<A, I> t) {
  double sums[2] = {0, 0};
  for (int64_t r = threadIdx.x; r < t.rows; r += blockDim.x) {
    sums[0] += double(t.loss[r]);
    sums[1] += int64_t(t.target[r]) != t.ignored;
  }
  join_row(Sum{}, sums);
  if (threadIdx.x == 0) t.write(sums[0], sums[1]);
}

template <class T, class I>
void forward_cuda(Device device, const Rows<T, I>& in) {
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = row_launch<T, 0>(in.rows, in.n, 256, 1 << 30, {});
  forward_kernel<<<l.blocks, l.threads, 0, stream>>>(in, cuda::error_record(device));
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
void total_cuda(Device device, const Total<A, I>& t) {
  total_kernel<<<1, 1024, 0, cuda::stream(device)>>>(t);
  cuda::check_launch("sum of losses");
}

}  // namespace gradus::entropy

#endif
