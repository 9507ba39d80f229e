#pragma once
// Rows fetched ahead: copies to shared memory in the background (Ampere and later), each thread for
// itself.
#include "ops/row.h"

#if defined(__CUDACC__)

namespace gradus {

// ---- single copies. A thread waits for its own, group by group.

__device__ inline uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}
/// 16 bytes.
__device__ inline void fetch(uint32_t shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
__device__ inline uint4 read_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLater>
__device__ void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

/// Rows of kMatrices matrices (rows, n) on their way: while one row is worked on, kAhead more are
/// fetched. A multiprocessor needs some 60 KB under way to keep the memory busy, which registers do not
/// hold. Each thread, of up to kThreads, fetches what it reads, so nobody waits for another:
///
///   stage 0   │ pack 0 of every thread │ pack 1 │ … │     being read
///   stage 1   │                        │        │   │     on the way
///   stage 2   │                        │        │   │     on the way
template <class T, int kPacks, bool kFull, int kMatrices, int kThreads, int kAhead = 2>
class RowsAhead {
 public:
  using R = Row<T, kPacks, kFull>;
  static constexpr int kStage = kMatrices * kPacks * kThreads * 16, kBytes = (kAhead + 1) * kStage;

  __device__ RowsAhead(void* shared, const T* const (&matrices)[kMatrices], int64_t rows, int64_t n)
      : n_(int(n)), step_(int64_t(gridDim.x) * blockDim.y * n) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y,
                  step = int64_t(gridDim.x) * blockDim.y;
    left_ = row < rows ? int((rows - row + step - 1) / step) : 0;
    begin_ = shared_address(shared) + (threadIdx.y * blockDim.x + threadIdx.x) * 16;
    put_ = take_ = begin_;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) at_[m] = matrices[m] + row * n + R::first(0);
    for (int i = 0; i < kAhead; ++i) fetch_next();
    take_ += kAhead * kStage;
  }
  /// To be called once for each row, before its parts are taken.
  __device__ void step() {
    fetch_next();
    wait_for_all_but<kAhead>();
    take_ = after(take_);
  }
  /// The row of matrix m.
  __device__ R row(int m) const {
    uint4 packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (R::has(k, n_)) packs[k] = read_shared(take_ + place(m, k));
    return {packs, n_};
  }

 private:
  static constexpr uint32_t place(int m, int k) { return uint32_t(m * kPacks + k) * kThreads * 16; }
  __device__ uint32_t after(uint32_t stage) const {
    return stage == begin_ + kAhead * kStage ? begin_ : stage + kStage;
  }
  __device__ void fetch_next() {
    if (left_ > 0) {
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
        for (int k = 0; k < kPacks; ++k)
          if (R::has(k, n_)) fetch(put_ + place(m, k), at_[m] + k * int(blockDim.x) * R::V);
        at_[m] += step_;
      }
    }
    --left_;
    end_group();
    put_ = after(put_);
  }

  const T* at_[kMatrices];
  int n_, left_;
  int64_t step_;
  uint32_t begin_, put_, take_;
};

}  // namespace gradus

#endif
