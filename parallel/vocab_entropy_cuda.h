#pragma once
// Vocabulary-parallel cross-entropy on a GPU: one pass over the logits before the message, one after it.
#include "ops/cross_entropy_cuda.h"
#include "parallel/vocab_entropy.h"

#if defined(__CUDACC__)

namespace gradus::parallel {

template <class T, class I>
__global__ void __launch_bounds__(256)
    vocab_parts_kernel(const VocabRows<T, I> in, cuda::DeviceError* error) {
  using A = Compute<T>;
  for (int64_t r = first_row(); r < in.rows; r += row_step()) {
    if (!in.has_loss(r)) {
      if (threadIdx.x != 0) continue;
      in.part[r] = {};
      if (in.counts(r)) cuda::report_index(error, "cross_entropy", r, int64_t(in.target[r]), in.vocabulary);
      continue;
    }
    entropy::Running<T> sums;
    Row<T, 0>(in.row(r), in.real).each([&](int64_t, A z) {
      sums.take(z);
      sums.sum_z += z;
    });
    sums.join();
    if (threadIdx.x != 0) continue;
    in.part[r] = {sums.m, sums.s, in.owns(r) ? A(in.row(r)[in.column(r)]) : A(0), sums.sum_z};
  }
}

template <class T, class I>
__global__ void vocab_join_kernel(const VocabRows<T, I> in) {
  const int64_t r = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r < in.rows) in.join(r);
}

template <class T, class I>
__global__ void __launch_bounds__(256)
    vocab_gradient_kernel(const VocabRows<T, I> in, const entropy::RowGradient<Compute<T>> dloss,
                          T* dz) {
  using A = Compute<T>;
  for (int64_t r = first_row(); r < in.rows; r += row_step()) {
    T* to = dz + r * in.width;
    const Row<T, 0> z(in.row(r), in.real);
    if (in.scale[r].log_sum == -entropy::kInfinity<A>) {
      z.store(to, [](int64_t, A) { return A(0); });
    } else {
      const entropy::Differentiate<A> d(in, r, dloss(r));
      const int64_t target = in.column(r);
      z.store(to, [&](int64_t j, A x) {
        const A p = exp_for<T>((x - d.row.max) - d.row.log_sum);
        return d.dloss * (p - (j == target ? d.at_target : d.elsewhere));
      });
    }
    for (int64_t j = in.real + threadIdx.x; j < in.width; j += blockDim.x) to[j] = T(A(0));
  }
}

template <class T, class I>
void vocab_parts_cuda(Device device, const VocabRows<T, I>& in) {
  RowLaunch l = row_launch<T, 0>(in.rows, in.width, 256, 1 << 30, {});
  vocab_parts_kernel<<<l.blocks, l.threads, 0, cuda::stream(device)>>>(in,
                                                                       cuda::error_record(device));
  cuda::check_launch("parts of a vocabulary-parallel cross-entropy");
}

template <class T, class I>
void vocab_join_cuda(Device device, const VocabRows<T, I>& in) {
  const auto blocks = unsigned((in.rows + 255) / 256);
  vocab_join_kernel<<<blocks, 256, 0, cuda::stream(device)>>>(in);
  cuda::check_launch("a vocabulary-parallel cross-entropy");
}

template <class T, class I>
void vocab_gradient_cuda(Device device, const VocabRows<T, I>& in,
                         entropy::RowGradient<Compute<T>> dloss, T* dz) {
  RowLaunch l = row_launch<T, 0>(in.rows, in.width, 256, 1 << 30, {});
  vocab_gradient_kernel<<<l.blocks, l.threads, 0, cuda::stream(device)>>>(in, dloss, dz);
  cuda::check_launch("gradient of a vocabulary-parallel cross-entropy");
}

}  // namespace gradus::parallel

#endif
