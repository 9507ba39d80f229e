#pragma once
// Rows in CUDA kernels: softmax, norms and cross-entropy reduce each row of C neighbouring elements.
//
//   C small   one warp a row           C large   one block a row
//   block     ▭▭▭▭ 32 threads: row 0   block     ▭▭▭▭▭▭▭▭▭▭▭▭▭▭▭▭ threadIdx.x: row 0
//             ▭▭▭▭            row 1
//             threadIdx.y: which row
//
// Memory is read in packs of 16 bytes: of `width` threads, thread t has the packs t, t + width, … of
// its row. A row that fits is held in registers, and memory is read once however often the row is
// passed over. Others are streamed: read again in each pass.
#include "core/cuda.h"
#include "core/elementwise.h"
#include "core/math.h"
#include "ops/exp2.h"

#if defined(__CUDACC__)

namespace gradus {

template <class T>
constexpr int kPackSize = 16 / int(sizeof(T));

/// Waits for the other threads of the same row. (Rows of several warps that share a block have a
/// barrier each: numbers 1 to 15.)
__device__ inline void sync_row() {
  if (blockDim.x == 32) return __syncwarp();
  if (blockDim.y == 1) return __syncthreads();
  asm volatile("bar.sync %0, %1;" ::"r"(1 + int(threadIdx.y)), "r"(int(blockDim.x)) : "memory");
}

/// Moves a pack in units of 16 bytes, or one element. (Written as a copy of the struct, it is moved
/// element by element where the compiler does not see the alignment.)
template <class T, int V>
__device__ Pack<T, V> load_pack(const T* from) {
  using Unit = std::conditional_t<V == 1, T, uint4>;
  constexpr int kUnits = int(sizeof(Pack<T, V>) / sizeof(Unit));
  Unit units[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) units[u] = reinterpret_cast<const Unit*>(from)[u];
  Pack<T, V> pack;
  memcpy(&pack, units, sizeof(pack));
  return pack;
}
template <class T, int V>
__device__ void store_pack(T* to, const Pack<T, V>& pack) {
  using Unit = std::conditional_t<V == 1, T, uint4>;
  constexpr int kUnits = int(sizeof(Pack<T, V>) / sizeof(Unit));
  Unit units[kUnits];
  memcpy(units, &pack, sizeof(pack));
#pragma unroll
  for (int u = 0; u < kUnits; ++u) reinterpret_cast<Unit*>(to)[u] = units[u];
}

/// Element j of a pack, widened.
template <class T>
__device__ Compute<T> element(const uint4& pack, int j) {
  const uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
  if constexpr (sizeof(T) == 2) {
    return Compute<T>(bits_of<T>(uint16_t(words[j / 2] >> 16 * (j % 2))));
  } else if constexpr (sizeof(T) == 4) {
    return bits_of<T>(words[j]);
  } else {
    return bits_of<T>(uint64_t(words[2 * j + 1]) << 32 | words[2 * j]);
  }
}

/// eˣ for a result that is rounded to T. For 16-bit types, two instructions: x log₂e is off by 2⁻²⁴ of
/// itself, the power by 2⁻²².
template <class T>
__device__ Compute<T> exp_for(Compute<T> x) {
  if constexpr (sizeof(T) == 2) {
    return exp2_fast(x * 1.44269504f);
  } else {
    return math::exp(x);
  }
}

/// One thread's part of a row of n elements, which starts at 16 bytes and consists of whole packs: in
/// registers, up to kPacks of them. With kFull it is known to have so many. A row at null is a row of
/// zeros.
template <class T, int kPacks, bool kFull = false>
class Row {
 public:
  static constexpr int V = kPackSize<T>, kSlots = kPacks * V;

  __device__ Row(const T* row, int64_t n) : n_(int(n)) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) pack_[k] = {0, 0, 0, 0};
    if (!row) return;
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (has(k, n_)) pack_[k] = *reinterpret_cast<const uint4*>(row + first(k));
  }

  /// What this thread has of a row, pack by pack.
  __device__ Row(const uint4 (&packs)[kPacks], int64_t n) : n_(int(n)) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) pack_[k] = packs[k];
  }

  /// Calls f(slot, x, others…) on each element of this thread's part. A slot is a number below kSlots
  /// that the compiler knows: an array by slots stays in registers.
  template <class F, class... Others>
  __device__ void each(F f, const Others&... others) const {
    narrow(), (others.narrow(), ...);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k, n_)) continue;
#pragma unroll
      for (int j = 0; j < V; ++j)
        f(k * V + j, element<T>(pack_[k], j), element<T>(others.pack_[k], j)...);
    }
  }

  /// y_i ← f(slot, i, x_i, others_i…) on this thread's part. y may be the row itself.
  template <class F, class... Others>
  __device__ void put(T* y, F f, const Others&... others) const {
    narrow(), (others.narrow(), ...);
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (has(k, n_)) *reinterpret_cast<uint4*>(y + first(k)) = packed(k, f, others...);
  }
  /// The same of an f(i, x_i, others_i…).
  template <class F, class... Others>
  __device__ void store(T* y, F f, const Others&... others) const {
    put(
        y, [&](int, int64_t i, auto... v) { return f(i, v...); }, others...);
  }
  /// x_i ← f(slot, i, x_i, others_i…) in registers; y too, if it is not null.
  template <class F, class... Others>
  __device__ void set(T* y, F f, const Others&... others) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k, n_)) continue;
      pack_[k] = packed(k, f, others...);
      if (y) *reinterpret_cast<uint4*>(y + first(k)) = pack_[k];
    }
  }

  /// The first element of the warp's part.
  __device__ Compute<T> first_of_warp() const {
    return __shfl_sync(~0u, element<T>(pack_[0], 0), 0);
  }
  static __device__ int64_t column(int slot) { return first(slot / V) + slot % V; }
  /// The first column of pack k, and whether a row of n elements has it.
  static __device__ int first(int k) { return (k * int(blockDim.x) + int(threadIdx.x)) * V; }
  static __device__ bool has(int k, int n) { return kFull || first(k) < n; }

 private:
  template <class F, class... Others>
  __device__ uint4 packed(int k, F& f, const Others&... others) const {
    Pack<T, V> out;
#pragma unroll
    for (int j = 0; j < V; ++j)
      out.v[j] = T(f(k * V + j, int64_t(first(k) + j), element<T>(pack_[k], j),
                     element<T>(others.pack_[k], j)...));
    uint4 pack;
    memcpy(&pack, &out, sizeof(pack));
    return pack;
  }

  /// Before each pass. The compiler would keep what it widened in the last one, in twice the
  /// registers; it widens again once it must believe that the packs have changed.
  __device__ void narrow() const {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (uint4& p : pack_) asm volatile("" : "+r"(p.x), "+r"(p.y), "+r"(p.z), "+r"(p.w));
    }
  }

  int n_;
  mutable uint4 pack_[kPacks];
};

/// The same of a row anywhere, of any length, streamed. The slot of an element is its column.
template <class T>
class Row<T, 0, false> {
 public:
  static constexpr int V = kPackSize<T>, kSlots = 0;

  __device__ Row(const T* row, int64_t n) : row_(row), n_(n) {}

  template <class F, class... Others>
  __device__ void each(F f, const Others&... others) const {
    auto pass = [&](int64_t i, const auto&... packs) {
#pragma unroll
      for (int j = 0; j < V; ++j) f(i + j, element<T>(packs, j)...);
    };
    walk(
        boundary(others.row_...), [&](int64_t i) { f(i, read(i), others.read(i)...); },
        [&](int64_t i) { pass(i, load(i), others.load(i)...); });
  }

  template <class F, class... Others>
  __device__ void put(T* y, F f, const Others&... others) const {
    store(
        y, [&](int64_t i, auto... v) { return f(i, i, v...); }, others...);
  }
  template <class F, class... Others>
  __device__ void store(T* y, F f, const Others&... others) const {
    auto pass = [&](int64_t i, const auto&... packs) {
      Pack<T, V> out;
#pragma unroll
      for (int j = 0; j < V; ++j) out.v[j] = T(f(i + j, element<T>(packs, j)...));
      store_pack(y + i, out);
    };
    walk(
        boundary(y, others.row_...), [&](int64_t i) { y[i] = T(f(i, read(i), others.read(i)...)); },
        [&](int64_t i) { pass(i, load(i), others.load(i)...); });
  }
  /// The row is y from now on.
  template <class F, class... Others>
  __device__ void set(T* y, F f, const Others&... others) {
    put(y, f, others...);
    sync_row();  // a pass over y alone may give an element to another thread
    row_ = y;
  }

 private:
  /// Elements before the first 16-byte boundary; all n, if the rows have theirs at different columns.
  template <class... Pointers>
  __device__ int64_t boundary(Pointers... others) const {
    auto past = [](const T* p) { return int(uintptr_t(p) / sizeof(T) % V); };
    const bool same = ((others == nullptr || past(others) == past(row_)) && ...);
    const int64_t before = (V - past(row_)) % V;
    return same && before < n_ ? before : n_;
  }

  template <class Single, class Whole>
  __device__ void walk(int64_t begin, Single single, Whole whole) const {
    const int64_t end = begin + (n_ - begin) / V * V;
    for (int64_t i = threadIdx.x; i < begin; i += blockDim.x) single(i);
    for (int64_t i = begin + int64_t(threadIdx.x) * V; i < end; i += int64_t(blockDim.x) * V)
      whole(i);
    for (int64_t i = end + threadIdx.x; i < n_; i += blockDim.x) single(i);
  }

  __device__ Compute<T> read(int64_t i) const { return row_ ? Compute<T>(row_[i]) : Compute<T>(0); }
  __device__ uint4 load(int64_t i) const {
    return row_ ? *reinterpret_cast<const uint4*>(row_ + i) : uint4{0, 0, 0, 0};
  }

  const T* row_;
  int64_t n_;
};

/// How the rows of a kernel are spread over threads. Kernels step through the rows by the grid.
struct RowLaunch {
  bool held;  // rows fit Row<T, kPacks>, else Row<T, 0>
  dim3 threads;
  unsigned blocks;
};

/// For a kernel that holds Row<T, kPacks> and is compiled for up to `most` threads a block. All
/// matrices (rows, n) at `pointers` are contiguous.
template <class T, int kPacks>
RowLaunch row_launch(int64_t rows, int64_t n, int most, int64_t most_blocks,
                     std::initializer_list<const void*> pointers) {
  constexpr int V = kPackSize<T>;
  bool held = n % V == 0 && n <= int64_t(most) * kPacks * V;
  for (const void* p : pointers) held = held && aligned_to(16, p);
  int width = 32;
  while (held ? int64_t(width) * kPacks * V < n : width < 256 && int64_t(width) * V < n) width *= 2;
  int rows_a_block = width == 32 ? 4 : 1;
  int64_t blocks = std::min((rows + rows_a_block - 1) / rows_a_block, most_blocks);
  return {held, dim3(unsigned(width), unsigned(rows_a_block)), unsigned(blocks)};
}

/// The first row of a thread, and the step to its next.
__device__ inline int64_t first_row() { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
__device__ inline int64_t row_step() { return int64_t(gridDim.x) * blockDim.y; }

}  // namespace gradus

#endif
