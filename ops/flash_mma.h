#pragma once
// The parts of flash attention by mma.sync (ops/mma.h), which any GPU since compute capability 8.0 runs: how
// kernels see the tensors, how tiles come to shared memory, and the two products of a warp.
#include "ops/flash_attention.h"

#if defined(__CUDACC__)
#include "core/cuda.h"
#include "ops/flash_dropout.h"
#include "ops/mma.h"

namespace gradus::flash_mma {

using mma::Tile;

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kBlock = 64;  // rows of the operand that is walked over

/// A (B, H, T, d) tensor as a kernel sees it. Query head h is member h % group of its group, and the
/// groups of packed queries, keys and values lie further apart than their members.
template <class T>
struct Rows {
  T* data;
  int64_t batch, group, member, row;  // strides
  __device__ T* at(int b, int g, int m = 0) const {
    return data + b * batch + g * group + m * member;
  }
};

template <class T>
struct Problem {
  Rows<const T> q, k, v, o, d_o;
  Rows<T> out, dq, dk, dv;
  float *lse, *delta;        // (B, H, Tq)
  int heads, group, tq, tk;  // heads of queries; how many of them share a head of keys
  float scale;
  bool causal;
  const int* lengths;  // (B), or null
  FlashDropout dropout;
  float keep_scale;

  /// How many keys a sequence has. kExtras: it may have a length, and dropout is on or off.
  template <bool kExtras>
  __device__ int keys(int b) const {
    return kExtras && lengths ? max(0, min(tk, lengths[b])) : tk;
  }
  /// The last of `keys` keys that query i sees, and the first query that sees key j.
  __device__ int last_key(int i, int keys) const {
    return causal ? min(keys - 1, i + tk - tq) : keys - 1;
  }
  __device__ int first_query(int j) const { return causal ? max(0, j - (tk - tq)) : 0; }
};

/// Starts copying `kRows` rows from `first` on into `tile`; rows from `end` on are zeros.
template <int kRows, int D, class T>
__device__ void load_tile(Tile<D> tile, const T* data, int64_t stride, int first, int end) {
  for (int i = threadIdx.x; i < kRows * D / 8; i += blockDim.x) {
    int r = i / (D / 8), chunk = i % (D / 8);
    bool valid = first + r < end;
    mma::copy_async(tile.at(r, chunk), data + (valid ? first + r : 0) * stride + chunk * 8, valid);
  }
}

/// Sixteen rows of a tile as operand A: held in registers, or, where those are scarce, read again.
template <int D, bool kKeep>
struct OperandA {
  Tile<D> tile;
  int row;
  uint32_t kept[kKeep ? D / 16 : 1][4];

  __device__ void start() {
    if constexpr (kKeep)
#pragma unroll
      for (int k = 0; k < D / 16; ++k) mma::load_a(kept[k], tile, row, k);
  }
  __device__ void get(uint32_t (&a)[4], int k) const {
    if constexpr (kKeep)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = kept[k][i];
    else
      mma::load_a(a, tile, row, k);
  }
};

/// c (16 × 64) ← A · tileᵀ, a sum over D.
template <class T, int D, bool kKeep>
__device__ void times_transposed(float (&c)[kBlock / 8][4], const OperandA<D, kKeep>& a,
                                 Tile<D> tile) {
#pragma unroll
  for (int n = 0; n < kBlock / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[n][e] = 0;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    uint32_t left[4];
    a.get(left, k);
#pragma unroll
    for (int n = 0; n < kBlock / 16; ++n) {
      uint32_t right[4];
      mma::load_b_transposed(right, tile, 16 * n, k);
      mma::multiply<T>(c[2 * n], left, right[0], right[1]);
      mma::multiply<T>(c[2 * n + 1], left, right[2], right[3]);
    }
  }
}

/// sum (16 × D) ← sum + P · tile, where P (16 × 64) is the result of an earlier product.
template <class T, int D>
__device__ void add_times(float (&sum)[D / 8][4], const float (&p)[kBlock / 8][4], Tile<D> tile) {
#pragma unroll
  for (int k = 0; k < kBlock / 16; ++k) {
    uint32_t left[4] = {mma::pack<T>(p[2 * k][0], p[2 * k][1]),
                        mma::pack<T>(p[2 * k][2], p[2 * k][3]),
                        mma::pack<T>(p[2 * k + 1][0], p[2 * k + 1][1]),
                        mma::pack<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t right[4];
      mma::load_b(right, tile, 16 * k, n);
      mma::multiply<T>(sum[2 * n], left, right[0], right[1]);
      mma::multiply<T>(sum[2 * n + 1], left, right[2], right[3]);
    }
  }
}

/// Writes a 16 × D result, times `factor` of each row, as rows first … first + 15 (those below `end`).
template <class T, int D>
__device__ void store(T* data, int64_t stride, int first, int end, const float (&c)[D / 8][4],
                      float factor_low, float factor_high) {
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int row = first + g + 8 * half;
    if (row >= end) continue;
    float factor = half ? factor_high : factor_low;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<uint32_t*>(data + row * stride + 8 * n + 2 * t) =
          mma::pack<T>(c[n][2 * half] * factor, c[n][2 * half + 1] * factor);
  }
}

/// What dropout leaves of tiles side by side.
__device__ inline void drop(float (&c)[kBlock / 8][4], uint32_t kept, float scale) {
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i)
    c[i / 4][i % 4] = kept >> i & 1 ? c[i / 4][i % 4] * scale : 0;
}

/// Over the four lanes that share a row.
__device__ inline float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
__device__ inline float row_sum(float v) {
  v += __shfl_xor_sync(~0u, v, 1);
  return v + __shfl_xor_sync(~0u, v, 2);
}

__device__ inline uint32_t shared_memory() {
  extern __shared__ __align__(128) unsigned char memory[];
  return uint32_t(__cvta_generic_to_shared(memory));
}

// ---- launching

template <class T>
Rows<T> rows(const Tensor& x) {
  const Strides& s = x.strides();
  T* data = static_cast<T*>(x.raw());
  return x.rank() == 5 ? Rows<T>{data, s[0], s[1], s[2], s[3]} : Rows<T>{data, s[0], s[1], 0, s[2]};
}

template <class T>
Problem<T> problem(const FlashInputs& in) {
  const Tensor &q = in.q, &k = in.k, &v = in.v;
  Problem<T> p{};
  p.q = rows<const T>(q), p.k = rows<const T>(k), p.v = rows<const T>(v);
  p.heads = int(q.size(1) * q.size(2)), p.group = int(q.size(2));
  p.tq = int(q.size(3)), p.tk = int(k.size(2));
  p.scale = float(in.scale), p.causal = in.causal;
  p.lengths = in.lengths ? in.lengths.data<int32_t>() : nullptr;
  p.dropout = {in.stream, in.threshold, p.tq, p.tk, in.head_rows};
  p.keep_scale = float(in.keep_scale);
  return p;
}

inline bool extras(const FlashInputs& in) { return in.lengths || in.threshold; }

template <class Kernel, class T>
void launch(Kernel kernel, dim3 grid, int threads, int bytes, Device device, const Problem<T>& p) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "flash attention: asking for shared memory");
  kernel<<<grid, threads, bytes, cuda::stream(device)>>>(p);
  cuda::check_launch("flash attention");
}

/// Calls f<T, D>() for the dtype and head size of q.
template <class F>
void dispatch(const Tensor& q, F f) {
  bool small = q.size(-1) == 64;
  if (q.dtype() == DType::bf16)
    small ? f.template operator()<bf16, 64>() : f.template operator()<bf16, 128>();
  else
    small ? f.template operator()<f16, 64>() : f.template operator()<f16, 128>();
}

constexpr int kWarps = 8;  // of a block
inline unsigned blocks_of(int64_t n, int size) { return unsigned((n + size - 1) / size); }

}  // namespace gradus::flash_mma
#endif
