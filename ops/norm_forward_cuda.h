#pragma once
// The forward of norms on a GPU. Up to four packs a thread: most rows have a warp each.
//
// Memory delivers some 15 bytes in each cycle of a multiprocessor, for 4 elements read and written. At 4
// instructions in a cycle, an element can have 32, in theory; so what counts here is to spend few, some
// 16, and to have others to issue while a warp waits. So no row is fetched ahead: there is a block for each
// few rows, and as many of them on a multiprocessor as registers allow.
#include "ops/norm_cuda.h"

#if defined(__CUDACC__)

namespace gradus::norm {

/// Row r of the branch, which may be repeated.
template <class T>
__device__ const T* branch_of_row(const Forward<T>& f, int64_t r) {
  return f.branch + (r < f.branch_rows ? r : r % f.branch_rows) * f.n;
}

/// x ← s = x + m ⊙ (branch + bias), which goes to memory, too.
template <Adds kAdds, class T, int kPacks, bool kFull>
__device__ void add_branch(const Forward<T>& f, int64_t r, Row<T, kPacks, kFull>& x,
                           const Row<T, kPacks, kFull>& branch, const Row<T, kPacks, kFull>& bias) {
  using A = Compute<T>;
  RowMask<T, kPacks> mask(f, r);
  auto add = [&](auto, int64_t i, A x_i, A branch_i, A bias_i) {
    const A b = branch_i + bias_i;
    if constexpr (kAdds == Adds::dropped) return x_i + mask(i, b);
    return x_i + b;
  };
  x.set(f.sum + r * f.n, add, branch, bias);
}

/// The first element of what is normalised: each warp of the row has it without the others.
template <Adds kAdds, class T>
__device__ Compute<T> first_of_row(const Forward<T>& f, int64_t r) {
  using A = Compute<T>;
  const A x = f.x[r * f.n];
  if constexpr (kAdds == Adds::nothing) return x;
  A b = *branch_of_row(f, r);
  if (f.bias) b += A(f.bias[0]);
  if constexpr (kAdds == Adds::dropped) b = RowMask<T, 1>(f, r)(0, b);
  return A(T(x + b));
}

/// Whether the first entry of a row stands for its mean. Note [mean of large numbers]
template <class T, int kPacks>
constexpr bool kShiftsByFirst = kPacks > 0 && sizeof(T) == 2;

/// μ and r of row r, and y. `first` is read if kShiftsByFirst.
template <class T, int kPacks, bool kFull>
__device__ void normalise_row(const Forward<T>& f, int64_t r, const Row<T, kPacks, kFull>& x,
                              Compute<T> first, RowSums<Compute<T>>& sum_row) {
  using A = Compute<T>;
  A m[1] = {0}, sums[2] = {0, 0};
  if (f.centred && kShiftsByFirst<T, kPacks>) {
    m[0] = first;
  } else if (f.centred) {
    x.each([&](auto, A v) { m[0] += v; });
    sum_row(m);
    m[0] *= f.share;
  }
  x.each([&](auto, A v) { sums[0] += v - m[0], sums[1] += (v - m[0]) * (v - m[0]); });
  sum_row(sums);
  const Moments<A> row = moments(f.centred, m[0], sums[0], sums[1], f.share, f.epsilon);
  if (threadIdx.x == 0) f.moments[r] = row;
  const Row<T, kPacks, kFull> gamma(f.gamma, f.n), beta(f.beta, f.n);
  x.store(f.y + r * f.n, Normalise<A>{row}, gamma, beta);
}

template <class T>
__global__ void __launch_bounds__(512) streamed_forward_kernel(const Forward<T> f) {
  using R = Row<T, 0>;
  RowSums<Compute<T>> sum_row;
  for (int64_t r = first_row(); r < f.rows; r += row_step()) {
    R x(f.x + r * f.n, f.n);
    if (f.branch) add_branch<Adds::dropped>(f, r, x, R(branch_of_row(f, r), f.n), R(f.bias, f.n));
    normalise_row(f, r, x, Compute<T>(0), sum_row);
  }
}

inline constexpr int kForwardPacks = 4, kForwardThreads = 256;

/// A row for each threadIdx.y. Parameters are read where they are needed, from the nearest cache:
/// registers that held them would be those of another warp.
template <Adds kAdds, class T, int kPacks, bool kFull>
__global__ void __launch_bounds__(kForwardThreads, kAdds == Adds::dropped ? 2
                                                   : kFull                ? 4
                                                           : 3) forward_kernel(const Forward<T> f) {
  using R = Row<T, kPacks, kFull>;
  using A = Compute<T>;
  const int64_t r = first_row();
  if (r >= f.rows) return;
  const bool shifts = f.centred && kShiftsByFirst<T, kPacks>;
  const bool alone = blockDim.x == 32;  // the warp has the whole row
  A first = shifts && !alone ? first_of_row<kAdds>(f, r) : A(0);
  R x(f.x + r * f.n, f.n);
  if constexpr (kAdds != Adds::nothing)
    add_branch<kAdds>(f, r, x, R(branch_of_row(f, r), f.n), R(f.bias, f.n));
  if (shifts && alone) first = x.first_of_warp();
  RowSums<A> sum_row;
  normalise_row(f, r, x, first, sum_row);
}

template <Adds kAdds, class T>
void forward_cuda(Device device, const Forward<T>& f) {
  cudaStream_t stream = cuda::stream(device);
  if constexpr (sizeof(T) < 8) {
    const unsigned width = row_width<T>(f.n, kForwardPacks);
    if (width <= kForwardThreads &&
        is_held<T>(f.n, f.first_element, {f.x, f.gamma, f.beta, f.y, f.branch, f.bias, f.sum})) {
      auto fills = [&](int packs) { return f.n == int64_t(width) * packs * kPackSize<T>; };
      auto kernel = fills(4)   ? forward_kernel<kAdds, T, 4, true>
                    : fills(3) ? forward_kernel<kAdds, T, 3, true>
                               : forward_kernel<kAdds, T, 4, false>;
      const dim3 threads = rows_of(width, kForwardThreads);
      const int64_t blocks = (f.rows + threads.y - 1) / threads.y;
      kernel<<<unsigned(blocks), threads, 0, stream>>>(f);
      return cuda::check_launch("norm kernel");
    }
  }
  const dim3 threads(std::min(512u, row_width<T>(f.n, 1)));
  const int64_t blocks = std::min<int64_t>(f.rows, 16 * cuda::multiprocessors(device));
  streamed_forward_kernel<<<unsigned(blocks), threads, 0, stream>>>(f);
  cuda::check_launch("norm kernel");
}

}  // namespace gradus::norm

#endif
