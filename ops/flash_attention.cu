// Flash attention [Dao et al. 2022; Dao 2023]: attention whose T × T scores never leave the chip.
//
//   S = Q Kᵀ / √d,   P = softmax(S),   O = P V
//
// Online softmax. A block of queries walks over blocks of keys and keeps, per row, the running maximum
// m, the sum l = Σ e^{s − m} and the unnormalised output o = Σ e^{s − m} v. A new block with maximum m'
// changes what came before by the factor c = e^{m − max(m, m')}:
//
//   m ← max(m, m'),   l ← c l + Σ e^{s − m},   o ← c o + e^{S − m} V;      at the end O = o / l
//
// Saved for backward: O and one number a row, lse = m + log l, from which P = e^{S − lse} comes back
// without a second softmax. With δ_i = Σ_j P_ij dP_ij = dO_i · O_i:
//
//   dV = Pᵀ dO      dP = dO Vᵀ      dS = P ⊙ (dP − δ)      dQ = dS K / √d      dK = dSᵀ Q / √d
//
// dK and dV are sums over queries: one CTA owns a block of keys and walks over the queries, with the
// scores transposed (Sᵀ = K Qᵀ), so that Pᵀ and dSᵀ come out of one product in the registers where the
// next wants them (ops/mma.h). dQ is a sum over keys: another kernel, one CTA a block of queries. That
// computes S and dP twice, seven products where five would do, and needs neither atomics nor a
// workspace: every sum has one order, so equal calls give equal bits.
//
// All exponentials are powers of two: e^{x} = 2^{x log₂e}, the factor folded into the scale.
//
// Dropout replaces P by P̃ = P ⊙ m/(1 − p) where P meets V and dP by dP ⊙ m/(1 − p); l sums what was there
// before, and δ is dO · O as without. Which are kept is found again, not stored (ops/flash_dropout.h).
#include "ops/flash_attention.h"

#include "core/cuda.h"
#include "ops/flash_backward_hopper.h"
#include "ops/flash_dropout.h"
#include "ops/flash_forward_hopper.h"
#include "ops/mma.h"

namespace gradus {

#if defined(__CUDACC__)
namespace {

using mma::Tile;

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kBlock = 64;  // rows of the operand that is walked over

/// A (B, H, T, d) tensor as a kernel sees it. Query head h is member h % group of its group, and the
/// groups of packed queries, keys and values lie further apart than their members.
template <class T>
struct Rows {
  T* data;
  int64_t batch, group, member, row;  // strides
  __device__ T* at(int b, int g, int m = 0) const { return data + b * batch + g * group + m * member; }
};

template <class T>
struct Problem {
  Rows<const T> q, k, v, o, d_o;
  Rows<T> out, dq, dk, dv;
  float *lse, *delta;  // (B, H, Tq)
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
  __device__ int last_key(int i, int keys) const { return causal ? min(keys - 1, i + tk - tq) : keys - 1; }
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
__device__ void times_transposed(float (&c)[kBlock / 8][4], const OperandA<D, kKeep>& a, Tile<D> tile) {
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
    uint32_t left[4] = {mma::pack<T>(p[2 * k][0], p[2 * k][1]), mma::pack<T>(p[2 * k][2], p[2 * k][3]),
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
  for (int i = 0; i < kBlock / 2; ++i) c[i / 4][i % 4] = kept >> i & 1 ? c[i / 4][i % 4] * scale : 0;
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

// ---- forward: one warp owns 16 queries

template <class T, int D, int kWarps, bool kExtras>
__global__ void __launch_bounds__(kWarps * 32) flash_forward_kernel(const Problem<T> p) {
  constexpr int kQueries = 16 * kWarps, kTile = kBlock * D * 2;
  int b = blockIdx.z, h = blockIdx.y, warp = threadIdx.x / 32;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  int first = (gridDim.x - 1 - blockIdx.x) * kQueries;  // the longest rows start first
  Tile<D> q_tile{shared_memory()};
  auto k_tile = [&](int j) { return Tile<D>{q_tile.base + kQueries * D * 2 + j % 2 * 2 * kTile}; };
  auto v_tile = [&](int j) { return Tile<D>{k_tile(j).base + kTile}; };
  const T *k = p.k.at(b, h / p.group), *v = p.v.at(b, h / p.group);
  int keys = p.template keys<kExtras>(b);
  auto load_keys = [&](int j) {
    load_tile<kBlock>(k_tile(j), k, p.k.row, j * kBlock, keys);
    load_tile<kBlock>(v_tile(j), v, p.v.row, j * kBlock, keys);
    mma::commit();
  };

  int blocks = (max(0, p.last_key(min(first + kQueries, p.tq) - 1, keys) + 1) + kBlock - 1) / kBlock;
  load_tile<kQueries>(q_tile, p.q.at(b, h / p.group, h % p.group), p.q.row, first, p.tq);
  load_keys(0);
  mma::wait<0>();
  __syncthreads();
  OperandA<D, D == 64> q{q_tile, 16 * warp};
  q.start();

  float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
  float scale = p.scale * kLog2e;
  int row = first + 16 * warp + g;
  for (int j = 0; j < blocks; ++j) {
    if (j + 1 < blocks) load_keys(j + 1);
    float s[kBlock / 8][4];
    times_transposed<T>(s, q, k_tile(j));
    if ((j + 1) * kBlock - 1 > p.last_key(row - g, keys)) {
#pragma unroll
      for (int n = 0; n < kBlock / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (j * kBlock + 8 * n + 2 * t + e % 2 > p.last_key(row + e / 2 * 8, keys)) s[n][e] = -INFINITY;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < kBlock / 8; ++n) top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      float next = fmaxf(m[half], row_max(top) * scale);
      float shift = next == -INFINITY ? 0 : next;  // a row that has seen no key yet
      float shrink = exp2f(m[half] - shift), sum = 0;
#pragma unroll
      for (int n = 0; n < kBlock / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) sum += s[n][e] = exp2f(s[n][e] * scale - shift);
      m[half] = next;
      l[half] = l[half] * shrink + sum;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) o[n][e] *= shrink;
    }
    if constexpr (kExtras)
      drop(s, p.dropout.kept(b * p.heads + h, row, j * kBlock + 2 * t), p.keep_scale);
    add_times<T>(o, s, v_tile(j));
    mma::wait<0>();
    __syncthreads();
  }

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    l[half] = row_sum(l[half]);
    factor[half] = l[half] > 0 ? 1 / l[half] : 0;
    int i = row + 8 * half;
    if (t == 0 && i < p.tq)
      p.lse[(int64_t(b) * p.heads + h) * p.tq + i] =
          l[half] > 0 ? (m[half] + log2f(l[half])) / kLog2e : -INFINITY;
  }
  store<T, D>(p.out.at(b, h / p.group, h % p.group), p.out.row, first + 16 * warp, p.tq, o, factor[0], factor[1]);
}

// ---- backward

/// δ_i = dO_i · O_i: one warp a row.
template <class T, int D>
__global__ void flash_delta_kernel(const Problem<T> p) {
  int i = blockIdx.x * 8 + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % 32;
  if (i >= p.tq) return;
  const T *o = p.o.at(b, h / p.group, h % p.group) + i * p.o.row, *d_o = p.d_o.at(b, h / p.group, h % p.group) + i * p.d_o.row;
  float sum = 0;
  for (int c = lane; c < D; c += 32) sum += float(o[c]) * float(d_o[c]);
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) p.delta[(int64_t(b) * p.heads + h) * p.tq + i] = sum;
}

/// dK and dV of 16 keys a warp, over all queries that see them and all heads that share them.
template <class T, int D, int kWarps, bool kExtras>
__global__ void __launch_bounds__(kWarps * 32) flash_keys_kernel(const Problem<T> p) {
  constexpr int kKeys = 16 * kWarps, kTile = kBlock * D * 2;
  int b = blockIdx.z, kv_head = blockIdx.y, warp = threadIdx.x / 32;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, first = blockIdx.x * kKeys;
  __shared__ float2 row_numbers[2][kBlock];  // lse·log₂e and δ of the queries
  Tile<D> k_tile{shared_memory()}, v_tile{k_tile.base + kKeys * D * 2};
  auto q_tile = [&](int n) { return Tile<D>{v_tile.base + kKeys * D * 2 + n % 2 * 2 * kTile}; };
  auto do_tile = [&](int n) { return Tile<D>{q_tile(n).base + kTile}; };

  int start = p.first_query(first) / kBlock, blocks = max(0, (p.tq + kBlock - 1) / kBlock - start);
  int keys = p.template keys<kExtras>(b);
  int steps = !kExtras || first < keys ? blocks * p.group : 0;
  auto load_queries = [&](int n) {
    int h = kv_head * p.group + n / blocks, i = (start + n % blocks) * kBlock;
    load_tile<kBlock>(q_tile(n), p.q.at(b, h / p.group, h % p.group), p.q.row, i, p.tq);
    load_tile<kBlock>(do_tile(n), p.d_o.at(b, h / p.group, h % p.group), p.d_o.row, i, p.tq);
    mma::commit();
    for (int r = threadIdx.x; r < kBlock; r += blockDim.x) {
      int64_t at = (int64_t(b) * p.heads + h) * p.tq + i + r;
      bool valid = i + r < p.tq && p.lse[at] != -INFINITY;
      // 2^{s − ∞} = 0: rows beyond the end, and rows that saw no key
      row_numbers[n % 2][r] = valid ? float2{p.lse[at] * kLog2e, p.delta[at]} : float2{INFINITY, 0};
    }
  };

  load_tile<kKeys>(k_tile, p.k.at(b, kv_head), p.k.row, first, keys);
  load_tile<kKeys>(v_tile, p.v.at(b, kv_head), p.v.row, first, keys);
  mma::commit();
  if (steps > 0) load_queries(0);
  mma::wait<0>();
  __syncthreads();
  OperandA<D, D == 64> k{k_tile, 16 * warp}, v{v_tile, 16 * warp};
  k.start();
  v.start();

  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  float scale = p.scale * kLog2e;
  int key = first + 16 * warp + g;
  for (int n = 0; n < steps; ++n) {
    if (n + 1 < steps) load_queries(n + 1);
    int i = (start + n % blocks) * kBlock;
    float s[kBlock / 8][4], dp[kBlock / 8][4];
    times_transposed<T>(s, k, q_tile(n));
#pragma unroll
    for (int c = 0; c < kBlock / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int query = 8 * c + 2 * t + e % 2;
        bool seen = key + e / 2 * 8 <= p.last_key(i + query, keys);
        s[c][e] = seen ? exp2f(s[c][e] * scale - row_numbers[n % 2][query].x) : 0;
      }
    uint32_t kept = 0;
    if constexpr (kExtras) {
      int head = b * p.heads + kv_head * p.group + n / blocks;
      kept = p.dropout.kept_transposed(head, key, i + 2 * t);
#pragma unroll
      for (int c = 0; c < kBlock / 8; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) dp[c][e] = s[c][e];
      drop(dp, kept, p.keep_scale);
      add_times<T>(dv, dp, do_tile(n));
    } else {
      add_times<T>(dv, s, do_tile(n));
    }
    times_transposed<T>(dp, v, do_tile(n));
    if constexpr (kExtras) drop(dp, kept, p.keep_scale);
#pragma unroll
    for (int c = 0; c < kBlock / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[c][e] *= dp[c][e] - row_numbers[n % 2][8 * c + 2 * t + e % 2].y;
    add_times<T>(dk, s, q_tile(n));
    mma::wait<0>();
    __syncthreads();
  }
  store<T, D>(p.dk.at(b, kv_head), p.dk.row, first + 16 * warp, p.tk, dk, p.scale, p.scale);
  store<T, D>(p.dv.at(b, kv_head), p.dv.row, first + 16 * warp, p.tk, dv, 1, 1);
}

/// dQ of 16 queries a warp, over the keys that they see.
template <class T, int D, int kWarps, bool kExtras>
__global__ void __launch_bounds__(kWarps * 32) flash_queries_kernel(const Problem<T> p) {
  constexpr int kQueries = 16 * kWarps, kTile = kBlock * D * 2;
  int b = blockIdx.z, h = blockIdx.y, warp = threadIdx.x / 32;
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  int first = (gridDim.x - 1 - blockIdx.x) * kQueries;
  Tile<D> q_tile{shared_memory()}, do_tile{q_tile.base + kQueries * D * 2};
  auto k_tile = [&](int j) { return Tile<D>{do_tile.base + kQueries * D * 2 + j % 2 * 2 * kTile}; };
  auto v_tile = [&](int j) { return Tile<D>{k_tile(j).base + kTile}; };
  int keys = p.template keys<kExtras>(b);
  auto load_keys = [&](int j) {
    load_tile<kBlock>(k_tile(j), p.k.at(b, h / p.group), p.k.row, j * kBlock, keys);
    load_tile<kBlock>(v_tile(j), p.v.at(b, h / p.group), p.v.row, j * kBlock, keys);
    mma::commit();
  };

  int blocks = (max(0, p.last_key(min(first + kQueries, p.tq) - 1, keys) + 1) + kBlock - 1) / kBlock;
  load_tile<kQueries>(q_tile, p.q.at(b, h / p.group, h % p.group), p.q.row, first, p.tq);
  load_tile<kQueries>(do_tile, p.d_o.at(b, h / p.group, h % p.group), p.d_o.row, first, p.tq);
  load_keys(0);
  mma::wait<0>();
  __syncthreads();
  OperandA<D, D == 64> q{q_tile, 16 * warp}, d_o{do_tile, 16 * warp};
  q.start();
  d_o.start();

  int row = first + 16 * warp + g;
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int i = row + 8 * half;
    int64_t at = (int64_t(b) * p.heads + h) * p.tq + i;
    bool valid = i < p.tq && p.lse[at] != -INFINITY;
    lse[half] = valid ? p.lse[at] * kLog2e : INFINITY;
    delta[half] = valid ? p.delta[at] : 0;
  }

  float dq[D / 8][4] = {};
  float scale = p.scale * kLog2e;
  for (int j = 0; j < blocks; ++j) {
    if (j + 1 < blocks) load_keys(j + 1);
    float s[kBlock / 8][4], dp[kBlock / 8][4];
    times_transposed<T>(s, q, k_tile(j));
    times_transposed<T>(dp, d_o, v_tile(j));
    if constexpr (kExtras)
      drop(dp, p.dropout.kept(b * p.heads + h, row, j * kBlock + 2 * t), p.keep_scale);
#pragma unroll
    for (int n = 0; n < kBlock / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        bool seen = j * kBlock + 8 * n + 2 * t + e % 2 <= p.last_key(row + e / 2 * 8, keys);
        float probability = seen ? exp2f(s[n][e] * scale - lse[e / 2]) : 0;
        s[n][e] = probability * (dp[n][e] - delta[e / 2]);
      }
    add_times<T>(dq, s, k_tile(j));
    mma::wait<0>();
    __syncthreads();
  }
  store<T, D>(p.dq.at(b, h / p.group, h % p.group), p.dq.row, first + 16 * warp, p.tq, dq, p.scale, p.scale);
}

// ---- launchers

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
  p.dropout = {in.stream, uint32_t(std::min<uint64_t>(in.threshold, UINT32_MAX)), p.tq, p.tk};
  p.keep_scale = float(in.keep_scale);
  return p;
}

bool extras(const FlashInputs& in) { return in.lengths || in.threshold; }

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
  if (q.dtype() == DType::bf16) small ? f.template operator()<bf16, 64>() : f.template operator()<bf16, 128>();
  else small ? f.template operator()<f16, 64>() : f.template operator()<f16, 128>();
}

void check_inputs(const FlashInputs& in) {
  check(in.scale > 0, "flash attention: scale ", in.scale, "; needed is a positive one");
  if (!in.lengths) return;
  const Tensor& n = in.lengths;
  check(n.dtype() == DType::i32 && n.shape() == Shape{in.q.size(0)} && n.is_contiguous() &&
            n.device() == in.q.device(),
        "flash attention: lengths ", n.describe(), "; needed are i32 (", in.q.size(0), ") on ",
        in.q.device());
}

constexpr int kWarps = 8;
unsigned blocks_of(int64_t n, int size) { return unsigned((n + size - 1) / size); }

}  // namespace

bool flash_attention_reads(const Tensor& x) {
  bool aligned = uintptr_t(x.raw()) % 16 == 0;
  for (int d = 0; d + 1 < x.rank(); ++d) aligned = aligned && x.strides()[d] % 8 == 0;
  return aligned && x.strides()[-1] == 1;
}

bool flash_attention_fits(const Tensor& q, const Tensor& k, const Tensor& v) {
  bool type = q.dtype() == DType::bf16 || q.dtype() == DType::f16;
  bool size = q.size(-1) == 64 || q.size(-1) == 128;
  return q.device().is_cuda() && type && size && q.numel() > 0 && k.numel() > 0 && flash_attention_reads(q) && flash_attention_reads(k) &&
         flash_attention_reads(v) && v.size(-1) == q.size(-1);
}

void flash_forward(const FlashInputs& in, const Tensor& o, const Tensor& lse) {
  check_inputs(in);
  bool hopper = flash_forward_hopper_fits(in, o);
  hopper ? flash_forward_hopper(in, o, lse) : flash_forward_mma(in, o, lse);
}

void flash_forward_mma(const FlashInputs& in, const Tensor& o, const Tensor& lse) {
  dispatch(in.q, [&]<class T, int D>() {
    Problem<T> p = problem<T>(in);
    p.out = rows<T>(o), p.lse = lse.data<float>();
    dim3 grid(blocks_of(p.tq, 16 * kWarps), unsigned(p.heads), unsigned(in.q.size(0)));
    launch(extras(in) ? flash_forward_kernel<T, D, kWarps, true> : flash_forward_kernel<T, D, kWarps, false>, grid, 32 * kWarps, (16 * kWarps + 4 * kBlock) * D * 2,
           in.q.device(), p);
  });
}

void flash_backward(const FlashInputs& in, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                    const FlashGradients& to) {
  check_inputs(in);
  bool hopper = flash_backward_hopper_fits(in, d_o);
  hopper ? flash_backward_hopper(in, o, lse, d_o, to) : flash_backward_mma(in, o, lse, d_o, to);
}

void flash_backward_mma(const FlashInputs& in, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                        const FlashGradients& to) {
  Tensor delta = empty(lse.shape(), DType::f32, lse.device());
  dispatch(in.q, [&]<class T, int D>() {
    Problem<T> p = problem<T>(in);
    p.o = rows<const T>(o), p.d_o = rows<const T>(d_o);
    p.dq = rows<T>(to.dq), p.dk = rows<T>(to.dk), p.dv = rows<T>(to.dv);
    p.lse = lse.data<float>(), p.delta = delta.data<float>();
    Device device = in.q.device();
    unsigned B = unsigned(in.q.size(0)), heads = unsigned(p.heads), kv_heads = unsigned(in.k.size(1));
    int bytes = (2 * 16 * kWarps + 4 * kBlock) * D * 2;
    launch(flash_delta_kernel<T, D>, dim3(blocks_of(p.tq, 8), heads, B), 256, 0, device, p);
    launch(extras(in) ? flash_keys_kernel<T, D, kWarps, true> : flash_keys_kernel<T, D, kWarps, false>, dim3(blocks_of(p.tk, 16 * kWarps), kv_heads, B), 32 * kWarps,
           bytes, device, p);
    launch(extras(in) ? flash_queries_kernel<T, D, kWarps, true> : flash_queries_kernel<T, D, kWarps, false>, dim3(blocks_of(p.tq, 16 * kWarps), heads, B), 32 * kWarps,
           bytes, device, p);
  });
}

#else

bool flash_attention_reads(const Tensor&) { return false; }
bool flash_attention_fits(const Tensor&, const Tensor&, const Tensor&) { return false; }
void flash_forward(const FlashInputs& in, const Tensor&, const Tensor&) {
  fail("flash attention needs a GPU, got ", in.q.describe());
}
void flash_forward_mma(const FlashInputs& in, const Tensor&, const Tensor&) {
  fail("flash attention needs a GPU, got ", in.q.describe());
}
void flash_backward(const FlashInputs& in, const Tensor&, const Tensor&, const Tensor&,
                    const FlashGradients&) {
  fail("flash attention needs a GPU, got ", in.q.describe());
}
void flash_backward_mma(const FlashInputs& in, const Tensor&, const Tensor&, const Tensor&,
                        const FlashGradients&) {
  fail("flash attention needs a GPU, got ", in.q.describe());
}

#endif

}  // namespace gradus
