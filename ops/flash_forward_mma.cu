// The forward of flash attention (derived in ops/flash_attention.cu) by mma.sync: one warp owns 16 queries, a
// block of eight warps walks over blocks of 64 keys, the next of which is copied meanwhile.
#include "ops/flash_mma.h"

namespace gradus {

#if defined(__CUDACC__)
namespace {

using namespace flash_mma;

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

  int blocks =
      (max(0, p.last_key(min(first + kQueries, p.tq) - 1, keys) + 1) + kBlock - 1) / kBlock;
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
          if (j * kBlock + 8 * n + 2 * t + e % 2 > p.last_key(row + e / 2 * 8, keys))
            s[n][e] = -INFINITY;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < kBlock / 8; ++n)
        top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      float next = fmaxf(m[half], row_max(top) * scale);
      float shift = next == -INFINITY ? 0 : next;  // a row that has seen no key yet
      float shrink = exp2f(m[half] - shift), sum = 0;
#pragma unroll
      for (int n = 0; n < kBlock / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e)
          sum += s[n][e] = exp2f(s[n][e] * scale - shift);
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
  store<T, D>(p.out.at(b, h / p.group, h % p.group), p.out.row, first + 16 * warp, p.tq, o,
              factor[0], factor[1]);
}

}  // namespace

void flash_forward_mma(const FlashInputs& in, const Tensor& o, const Tensor& lse) {
  dispatch(in.q, [&]<class T, int D>() {
    Problem<T> p = problem<T>(in);
    p.out = rows<T>(o), p.lse = lse.data<float>();
    dim3 grid(blocks_of(p.tq, 16 * kWarps), unsigned(p.heads), unsigned(in.q.size(0)));
    launch(extras(in) ? flash_forward_kernel<T, D, kWarps, true>
                      : flash_forward_kernel<T, D, kWarps, false>,
           grid, 32 * kWarps, (16 * kWarps + 4 * kBlock) * D * 2, in.q.device(), p);
  });
}

#else

void flash_forward_mma(const FlashInputs& in, const Tensor&, const Tensor&) {
  fail("flash attention needs a GPU, got ", in.q.describe());
}

#endif

}  // namespace gradus
