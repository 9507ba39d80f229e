// The backward of flash attention (derived in ops/flash_attention.cu) by mma.sync.
//
// dK and dV are sums over queries: one block owns a block of keys and walks over the queries, with the
// scores transposed (Sᵀ = K Qᵀ), so that Pᵀ and dSᵀ come out of one product in the registers where the
// next wants them (ops/mma.h). dQ is a sum over keys: another kernel, one block a block of queries. That
// computes S and dP twice, seven products where five would do, and needs neither atomics nor a
// workspace: every sum has one order, so equal calls give equal bits.
#include "ops/flash_mma.h"

namespace gradus {

#if defined(__CUDACC__)
namespace {

using namespace flash_mma;

/// δ_i = dO_i · O_i: one warp a row.
template <class T, int D>
__global__ void flash_delta_kernel(const Problem<T> p) {
  int i = blockIdx.x * 8 + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z,
      lane = threadIdx.x % 32;
  if (i >= p.tq) return;
  const T *o = p.o.at(b, h / p.group, h % p.group) + i * p.o.row,
          *d_o = p.d_o.at(b, h / p.group, h % p.group) + i * p.d_o.row;
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

  int blocks =
      (max(0, p.last_key(min(first + kQueries, p.tq) - 1, keys) + 1) + kBlock - 1) / kBlock;
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
  store<T, D>(p.dq.at(b, h / p.group, h % p.group), p.dq.row, first + 16 * warp, p.tq, dq, p.scale,
              p.scale);
}

}  // namespace

void flash_backward_mma(const FlashInputs& in, const Tensor& o, const Tensor& lse,
                        const Tensor& d_o, const FlashGradients& to) {
  Tensor delta = empty(lse.shape(), DType::f32, lse.device());
  dispatch(in.q, [&]<class T, int D>() {
    Problem<T> p = problem<T>(in);
    p.o = rows<const T>(o), p.d_o = rows<const T>(d_o);
    p.dq = rows<T>(to.dq), p.dk = rows<T>(to.dk), p.dv = rows<T>(to.dv);
    p.lse = lse.data<float>(), p.delta = delta.data<float>();
    Device device = in.q.device();
    unsigned B = unsigned(in.q.size(0)), heads = unsigned(p.heads),
             kv_heads = unsigned(in.k.size(1));
    int bytes = (2 * 16 * kWarps + 4 * kBlock) * D * 2;
    launch(flash_delta_kernel<T, D>, dim3(blocks_of(p.tq, 8), heads, B), 256, 0, device, p);
    launch(
        extras(in) ? flash_keys_kernel<T, D, kWarps, true> : flash_keys_kernel<T, D, kWarps, false>,
        dim3(blocks_of(p.tk, 16 * kWarps), kv_heads, B), 32 * kWarps, bytes, device, p);
    launch(extras(in) ? flash_queries_kernel<T, D, kWarps, true>
                      : flash_queries_kernel<T, D, kWarps, false>,
           dim3(blocks_of(p.tq, 16 * kWarps), heads, B), 32 * kWarps, bytes, device, p);
  });
}

#else

void flash_backward_mma(const FlashInputs& in, const Tensor&, const Tensor&, const Tensor&,
                        const FlashGradients&) {
  fail("flash attention needs a GPU, got ", in.q.describe());
}

#endif

}  // namespace gradus
