#pragma once
// The forward of norms on a GPU. Up to four packs a thread: most rows have a warp each.
#include "ops/norm_cuda.h"

#if defined(__CUDACC__)

namespace gradus::norm {

/// x ← s = x + m ⊙ (branch + bias), which goes to memory, too.
template <Adds kAdds, class T, int kPacks>
__device__ void add_branch(const Forward<T>& f, int64_t r, Row<T, kPacks>& x,
                           const Row<T, kPacks>& branch, const Row<T, kPacks>& bias) {
  using A = Compute<T>;
  RowMask<T, kPacks> mask(f, r);
  auto add = [&](auto, int64_t i, A x_i, A branch_i, A bias_i) {
    const A b = branch_i + bias_i;
    if constexpr (kAdds == Adds::dropped) return x_i + mask(i, b);
    return x_i + b;
  };
  x.set(f.sum + r * f.n, add, branch, bias);
}

/// μ and r of row r, and y.
template <class T, int kPacks>
__device__ void normalise_row(const Forward<T>& f, int64_t r, const Row<T, kPacks>& x,
                              RowSums<Compute<T>>& sum_row) {
  using A = Compute<T>;
  A m[1] = {0}, sums[2] = {0, 0};
  if (f.centred && kPacks > 0 && sizeof(T) == 2 && blockDim.x == 32) {
    m[0] = x.first_of_warp();
  } else if (f.centred) {
    x.each([&](auto, A v) { m[0] += v; });
    sum_row(m);
    m[0] /= A(f.n);
  }
  x.each([&](auto, A v) { sums[0] += v - m[0], sums[1] += (v - m[0]) * (v - m[0]); });
  sum_row(sums);
  const Moments<A> row = moments(f.centred, m[0], sums[0], sums[1], f.n, f.epsilon);
  if (threadIdx.x == 0) f.moments[r] = row;
  const Row<T, kPacks> gamma(f.gamma, f.n), beta(f.beta, f.n);
  x.store(f.y + r * f.n, Normalise<A>{row}, gamma, beta);
}

template <class T>
__global__ void __launch_bounds__(512) streamed_forward_kernel(const Forward<T> f) {
  using R = Row<T, 0>;
  RowSums<Compute<T>> sum_row;
  for (int64_t r = first_row(); r < f.rows; r += row_step()) {
    R x(f.x + r * f.n, f.n);
    if (f.branch)
      add_branch<Adds::dropped>(f, r, x, R(f.branch + r % f.branch_rows * f.n, f.n),
                                R(f.bias, f.n));
    normalise_row(f, r, x, sum_row);
  }
}

inline constexpr int kForwardPacks = 4, kForwardThreads = 256;
template <Adds kAdds, class T>
using ForwardRows = RowsAhead<T, kForwardPacks, kAdds == Adds::nothing ? 1 : 2, kForwardThreads, 2,
                              kAdds == Adds::branch>;

/// Parameters are read where they are needed, from the nearest cache: registers do not hold them.
template <Adds kAdds, class T>
__global__ void __launch_bounds__(kForwardThreads, kAdds == Adds::nothing ? 3 : 2)
    forward_kernel(const Forward<T> f) {
  using R = Row<T, kForwardPacks>;
  constexpr int kInputs = kAdds == Adds::nothing ? 1 : 2;
  extern __shared__ __align__(16) unsigned char shared[];
  const T* inputs[kInputs] = {f.x};
  if constexpr (kInputs == 2) inputs[1] = f.branch;
  ForwardRows<kAdds, T> ahead(shared, inputs, f.rows, f.n, f.branch_rows);
  RowSums<Compute<T>> sum_row;
  for (int64_t r = first_row(); r < f.rows; r += row_step()) {
    ahead.step();
    R x = ahead.row(0);
    if constexpr (kInputs == 2) add_branch<kAdds>(f, r, x, ahead.row(1), R(f.bias, f.n));
    normalise_row(f, r, x, sum_row);
  }
}

template <Adds kAdds, class T>
void forward_cuda(Device device, const Forward<T>& f) {
  cudaStream_t stream = cuda::stream(device);
  const int64_t processors = cuda::multiprocessors(device);
  auto blocks = [&](dim3 threads, int64_t a_processor) {
    return unsigned(std::min((f.rows + threads.y - 1) / threads.y, a_processor * processors));
  };
  if constexpr (sizeof(T) < 8) {
    const unsigned width = row_width<T>(f.n, kForwardPacks);
    if (width <= 256 &&
        is_held<T>(f.n, f.first_element, {f.x, f.gamma, f.beta, f.y, f.branch, f.bias, f.sum})) {
      const dim3 threads = rows_of(width, kForwardThreads);
      const size_t bytes = ForwardRows<kAdds, T>::kBytes;
      auto kernel = forward_kernel<kAdds, T>;
      allow_shared(kernel, bytes);
      kernel<<<blocks(threads, kAdds == Adds::nothing ? 3 : 2), threads, bytes, stream>>>(f);
      return cuda::check_launch("norm kernel");
    }
  }
  const dim3 threads(std::min(512u, row_width<T>(f.n, 1)));
  streamed_forward_kernel<<<blocks(threads, 16), threads, 0, stream>>>(f);
  cuda::check_launch("norm kernel");
}

}  // namespace gradus::norm

#endif
