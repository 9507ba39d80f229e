#pragma once
// Rows in CUDA kernels: softmax, norms and cross-entropy reduce each row of C neighbouring elements.
//
//   C small   one warp a row           C large   one block a row
//   block     ▭▭▭▭ 32 threads: row 0   block     ▭▭▭▭▭▭▭▭▭▭▭▭▭▭▭▭ threadIdx.x: row 0
//             ▭▭▭▭            row 1
//             threadIdx.y: which row
//
// A thread holds its part of the row in registers, in packs of 16 bytes, so that memory is read once
// however often the row is passed over: thread t of `width` holds packs t, t + width, t + 2 width, …
// Rows that do not fit, or do not start and end at 16 bytes, are read again at each pass instead.
#include "core/cuda.h"
#include "core/elementwise.h"

#if defined(__CUDACC__)

namespace gradus {

/// One thread's part of a row of n elements of type T: kPacks packs in registers, or none held
/// (kPacks = 0). A row at null is a row of zeros.
template <class T, int kPacks>
class Row {
 public:
  using A = Compute<T>;
  static constexpr int V = kPacks ? 16 / int(sizeof(T)) : 1;
  static constexpr int kSlots = kPacks * V;  // elements held

  __device__ Row(const T* row, int64_t n) : row_(row), n_(n) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (first(k) < n)
        pack_[k] = row ? *reinterpret_cast<const uint4*>(row + first(k)) : uint4{0, 0, 0, 0};
  }

  /// Calls f(x, others…) on each element of this thread's part.
  template <class F, class... Others>
  __device__ void each(F f, const Others&... others) const {
    each_slot([&](int64_t, auto... values) { f(values...); }, others...);
  }

  /// Calls f(slot, x, others…). A held element's slot is a number in [0, kSlots) known to the compiler,
  /// so that an array by slots stays in registers; else the slot is the column.
  template <class F, class... Others>
  __device__ void each_slot(F f, const Others&... others) const {
    if constexpr (kPacks == 0) {
      for (int64_t i = threadIdx.x; i < n_; i += blockDim.x) f(i, read(i), others.read(i)...);
    } else {
      narrow(), (others.narrow(), ...);
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (first(k) >= n_) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) f(k * V + j, held(k, j), others.held(k, j)...);
      }
    }
  }

  /// y_i ← f(x_i, others_i…) on this thread's part. y may be the row itself.
  template <class F, class... Others>
  __device__ void store(T* y, F f, const Others&... others) const {
    if constexpr (kPacks == 0) {
      for (int64_t i = threadIdx.x; i < n_; i += blockDim.x)
        y[i] = T(f(read(i), others.read(i)...));
    } else {
      narrow(), (others.narrow(), ...);
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (first(k) >= n_) continue;
        Pack<T, V> out;
#pragma unroll
        for (int j = 0; j < V; ++j) out.v[j] = T(f(held(k, j), others.held(k, j)...));
        *reinterpret_cast<Pack<T, V>*>(y + first(k)) = out;
      }
    }
  }

  /// The column of a slot.
  static __device__ int64_t column(int64_t slot) {
    if constexpr (kPacks == 0) return slot;
    return first(int(slot) / V) + slot % V;
  }

  // For the rows that are passed along as `others`.
  __device__ A read(int64_t i) const { return row_ ? A(row_[i]) : A(0); }
  __device__ A held(int k, int j) const {
    const uint32_t words[4] = {pack_[k].x, pack_[k].y, pack_[k].z, pack_[k].w};
    if constexpr (sizeof(T) == 2)
      return A(bits_of<T>(uint16_t(words[j / 2] >> 16 * (j % 2))));
    else
      return bits_of<T>(words[j]);
  }

  /// Before each pass. The compiler would keep what it widened in the last one, in twice the
  /// registers; it widens again once it must believe that the packs have changed.
  __device__ void narrow() const {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (uint4& p : pack_) asm volatile("" : "+r"(p.x), "+r"(p.y), "+r"(p.z), "+r"(p.w));
    }
  }

 private:
  static __device__ int first(int k) { return (k * int(blockDim.x) + int(threadIdx.x)) * V; }
  const T* row_;
  int64_t n_;
  mutable uint4 pack_[kPacks ? kPacks : 1];
};

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

/// How the rows of a kernel are spread over threads.
struct RowLaunch {
  bool held;  // Row<T, kPacks> fits, else Row<T, 0>
  dim3 threads;
  unsigned blocks;
};

/// For a kernel that holds Row<T, kPacks> and is compiled for up to `most` threads a block. All
/// matrices (rows, n) at `pointers` are contiguous. `most_blocks` bounds the grid; kernels step
/// through the rows by the grid.
template <class T, int kPacks>
RowLaunch row_launch(int64_t rows, int64_t n, int most, int64_t most_blocks,
                     std::initializer_list<const void*> pointers) {
  constexpr int V = 16 / int(sizeof(T));
  bool held = n % V == 0 && n <= int64_t(most) * kPacks * V;
  for (const void* p : pointers) held = held && aligned_to(16, p);
  int width = 32;
  while (held ? int64_t(width) * kPacks * V < n : width < 256 && width < n) width *= 2;
  int rows_a_block = width == 32 ? 4 : 1;
  int64_t blocks = (rows + rows_a_block - 1) / rows_a_block;
  return {held, dim3(unsigned(width), unsigned(rows_a_block)),
          unsigned(std::min(blocks, most_blocks))};
}

/// The first row of a thread, and the step to its next.
__device__ inline int64_t first_row() { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
__device__ inline int64_t row_step() { return int64_t(gridDim.x) * blockDim.y; }

}  // namespace gradus

#endif
