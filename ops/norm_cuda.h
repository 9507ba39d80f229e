#pragma once
// Norms on a GPU: the row in registers, one pass over memory (see ops/row.h). What forward and backward
// share.
#include "ops/norm.h"
#include "ops/row_sums.h"
#include "ops/rows_ahead.h"

#if defined(__CUDACC__)

namespace gradus::norm {

/// What is added to x before it is normalised: nothing, a branch, a branch with dropout. Kernels for
/// streamed rows are made for `dropped` and look which of them it is.
enum class Adds { nothing, branch, dropped };

/// x ↦ m x for the elements of row r in order. Packs start at multiples of four, the size of a block
/// of the cipher, also in the whole that the mask is of (see is_held).
template <class T, int kPacks>
struct RowMask {
  const DropMask& mask;
  uint64_t row_start;
  RandomBlock words{};
  template <class Problem>  // Forward or Backward
  __device__ RowMask(const Problem& p, int64_t r)
      : mask(p.mask), row_start(p.first_element + uint64_t(r * p.n)) {}
  template <class A>
  __device__ A operator()(int64_t i, A x) {
    const uint64_t at = row_start + uint64_t(i);
    if constexpr (kPacks == 0) {
      return mask.drops() ? mask(mask.stream.word(at), x) : x;
    } else {
      if (i % 4 == 0) words = mask.stream.block(at / 4);
      return mask(words.lane(uint64_t(i)), x);
    }
  }
};

/// Threads for a row of n elements at kPacks a thread: whole warps.
template <class T>
unsigned row_width(int64_t n, int packs) {
  const int64_t a_warp = 32 * packs * kPackSize<T>;
  return unsigned(32 * std::max<int64_t>(1, (n + a_warp - 1) / a_warp));
}
template <class T>
bool is_held(int64_t n, uint64_t first_element, std::initializer_list<const void*> pointers) {
  bool held = sizeof(T) < 8 && n % kPackSize<T> == 0 && first_element % 4 == 0;
  for (const void* p : pointers) held = held && aligned_to(16, p);
  return held;
}
/// Blocks of up to `most` threads, of as many rows as fit.
inline dim3 rows_of(unsigned width, unsigned most) {
  return dim3(width, std::max(1u, most / width));
}

/// Lets `kernel` have more than 48 KB of shared memory a block.
template <class Kernel>
void allow_shared(Kernel* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
        "norm: shared memory");
}

}  // namespace gradus::norm

#endif
