// The backward of flash attention on Hopper (flash_attention.cu has the derivation, hopper*.h the
// instructions). With S = Q Kᵀ, P = exp(scale S − lse), δ = rowsum(dO ⊙ O):
//
//   dV = Pᵀ dO      dP = dO Vᵀ      dS = P ⊙ (dP − δ)      dQ = scale dS K      dK = scale dSᵀ Q
//
// Five products, each computed once. The T × T scores never leave the chip: a block of threads takes a
// block of 128 keys, walks over the queries that see it, and keeps dK and dV in registers. dQ is a sum
// over blocks of keys, which different multiprocessors have, and floating sums depend on their order: here
// block j adds after block j − 1, always, so equal calls give equal bits.
//
//   flash_backward_tiles.h     how the work is cut, and in what order it is done
//   flash_backward_copies.h    the warpgroup that loads, and that adds dQ
//   flash_backward_products.h  the two warpgroups that compute
//
// Two kernels: the first computes δ and clears the workspace, the second does the rest. There are as many
// blocks of threads as multiprocessors; each takes work until none is left. Sums over positions, where they
// are wanted, cost the first one a few additions, for those of dV are those of dO (flash_attention.cu), and a
// third kernel that reads dQ.
#include "ops/flash_backward_hopper.h"

#include <algorithm>

#include "core/cuda.h"
#include "core/early_start.h"
#include "ops/flash_backward_copies.h"
#include "ops/flash_backward_products.h"
#include "ops/flash_backward_tiles.h"

namespace gradus {

#if defined(__CUDACC__)
namespace {

using namespace flash_gradients;

/// (B, groups, members, T, d): strides in elements.
template <class T>
struct Heads {
  T* data;
  int64_t batch, group, member, row;
  __device__ T* at(int b, int g, int m, int64_t t) const {
    return data + b * batch + g * group + m * member + t * row;
  }
};

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 1)
    flash_backward_kernel(const __grid_constant__ Maps maps, const Problem p) {
#if defined(GRADUS_SM90A)
  extern __shared__ __align__(1024) unsigned char memory[];
  Memory<D> at{uint32_t(__cvta_generic_to_shared(memory))};
  int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // so that the compiler sees: one for all lanes
  if (threadIdx.x == 0) at.start();
  __syncthreads();
  if (warp < 4) {
    hopper::shrink_registers<40>();
    if (warp == 0 && threadIdx.x == 0) load_inputs<D>(p, maps, at);
    if (warp == 2 && threadIdx.x == 64) publish<D>(p, maps, at);
    if (warp == 1 || warp == 3) add_queries<T, D>(p, maps, at, warp / 2);
  } else {
    hopper::grow_registers<232>();
    compute<T, D>(p, at, warp / 4 - 1);
  }
#endif
}

/// Over all rows of a tile, the sum of column threadIdx.x < D; `sum` is that of a thread's own rows, of
/// columns `column` … + 7.
template <int D>
__device__ float sum_of_tile(float (&sum)[8], int column) {
  constexpr int kLanes = D / 8;
  __shared__ float sums[8][D];  // of the warps
#pragma unroll
  for (int c = 0; c < 8; ++c) {
#pragma unroll
    for (int step = kLanes; step < 32; step *= 2) sum[c] += __shfl_xor_sync(~0u, sum[c], step);
    if (threadIdx.x % 32 < kLanes) sums[threadIdx.x / 32][column + c] = sum[c];
  }
  __syncthreads();
  float all = 0;
  if (threadIdx.x < D)
    for (int w = 0; w < 8; ++w) all += sums[w][threadIdx.x];
  return all;
}

/// δ and lse · log₂e, padded to whole tiles; no block has had a turn; dq = 0 where no key is visible. A
/// block of threads takes a tile of queries, D/8 threads a row, four rows a thread.
template <class T, int D>
__global__ void __launch_bounds__(256)
    flash_prepare_kernel(const Problem p, const Heads<const T> o, const Heads<const T> d_o,
                         const Heads<T> dq, const float* lse) {
#if defined(GRADUS_SM90A)
  constexpr int kQueries = Tiles<D>::kQueries, kLanes = D / 8;
  int tile = blockIdx.x, h = blockIdx.y, b = blockIdx.z, column = threadIdx.x % kLanes * 8;
  int g = h / p.members, m = h % p.members;
  int64_t head = int64_t(b) * p.groups * p.members + h;
  if (threadIdx.x == 0) p.turns[head * p.query_tiles + tile] = 0;
  if (threadIdx.x == 0 && tile == 0 && head == 0) *p.next_work = 0;
  bool unseen = Tiles<D>::last_block(p, tile) < 0;
  float column_sums[8] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int local = threadIdx.x / kLanes + i * (256 / kLanes), row = tile * kQueries + local;
    float sum = 0;
    if (row < p.tq) {
      uint4 x = *reinterpret_cast<const uint4*>(o.at(b, g, m, row) + column);
      uint4 y = *reinterpret_cast<const uint4*>(d_o.at(b, g, m, row) + column);
      const T *xs = reinterpret_cast<const T*>(&x), *ys = reinterpret_cast<const T*>(&y);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        sum += float(xs[c]) * float(ys[c]);
        column_sums[c] += float(ys[c]);
      }
      if (unseen) *reinterpret_cast<uint4*>(dq.at(b, g, m, row) + column) = uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int step = kLanes / 2; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (column == 0) {
      float l = row < p.tq ? lse[head * p.tq + row] : -INFINITY;
      bool seen = l != -INFINITY;
      int64_t to = (head * p.query_tiles + tile) * kQueries + local;
      p.lse[to] = seen ? l * kLog2e : INFINITY;  // 2^(s − ∞) = 0
      p.delta[to] = seen ? sum : 0;
    }
  }
  if (!p.parts) return;
  const float sum = sum_of_tile<D>(column_sums, column);
  if (threadIdx.x >= D) return;
  float* part = p.part(b, tile, h, D) + threadIdx.x;
  part[D] = 0, part[2 * D] = sum;
#endif
}

/// The parts of dQ, in the same blocks.
template <class T, int D>
__global__ void __launch_bounds__(256)
    flash_query_sums_kernel(const Problem p, const Heads<const T> dq) {
#if defined(GRADUS_SM90A)
  constexpr int kQueries = Tiles<D>::kQueries, kLanes = D / 8;
  const int tile = blockIdx.x, h = blockIdx.y, b = blockIdx.z, column = threadIdx.x % kLanes * 8;
  float sums[8] = {};
  cuda::wait_for_before();
  cuda::let_next_start();  // the sum of the parts, where it does not wait for others
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = tile * kQueries + threadIdx.x / kLanes + i * (256 / kLanes);
    if (row >= p.tq) break;
    const uint4 x = *reinterpret_cast<const uint4*>(dq.at(b, h, 0, row) + column);
#pragma unroll
    for (int c = 0; c < 8; ++c) sums[c] += reinterpret_cast<const T*>(&x)[c];
  }
  const float sum = sum_of_tile<D>(sums, column);
  if (threadIdx.x < D) p.part(b, tile, h, D)[threadIdx.x] = sum;
#endif
}

// ---- launch

template <class T>
Heads<T> heads(const Tensor& x) {
  const Strides& s = x.strides();
  return {static_cast<T*>(x.raw()), s[0], s[1], s[2], s[3]};
}

int divide_up(int64_t a, int64_t b) { return int((a + b - 1) / b); }

/// The problem without its workspace. Chunks of half as many heads as there are multiprocessors: two
/// blocks of each are in work at a time, and at d = 64, T = 1024 a chunk is 50 MB, the size of the cache.
Problem problem(const FlashInputs& in, int queries, int processors) {
  Problem p{};
  p.groups = int(in.q.size(1)), p.members = int(in.q.size(2));
  p.tq = int(in.q.size(3)), p.tk = int(in.k.size(2));
  p.query_tiles = divide_up(p.tq, queries), p.key_blocks = divide_up(p.tk, kKeys);
  p.pairs = int(in.q.size(0)) * p.groups;
  p.chunk = std::max(processors / 2, 4 * processors / p.key_blocks);
  p.scale = float(in.scale), p.causal = in.causal;
  return p;
}

template <class T, int D>
Tensor launch(const FlashInputs& in, const Tensor& o, const Tensor& lse, const Tensor& d_o,
              const FlashGradients& to, bool wants_sums) {
  using S = Tiles<D>;
  Device device = in.q.device();
  cudaStream_t stream = cuda::stream(device);
  int processors = cuda::multiprocessors(device);
  Problem p = problem(in, S::kQueries, processors);
  int64_t tiles = int64_t(p.pairs) * p.members * p.query_tiles;
  Tensor sums = empty({p.key_blocks > 1 ? tiles * 2 * kSlab / 4 : 1}, DType::f32, device);
  Tensor numbers = empty({2, tiles * S::kQueries}, DType::f32, device);
  Tensor turns = empty({tiles + 1}, DType::i32, device);
  p.sums = sums.data<float>(), p.lse = numbers.data<float>(), p.delta = p.lse + tiles * S::kQueries;
  p.turns = turns.data<int32_t>(), p.next_work = p.turns + tiles;
  Tensor parts{};
  if (wants_sums && p.members == 1 && p.tq == p.tk) {
    parts = empty({in.q.size(0) * p.query_tiles, p.groups, 3, D}, DType::f32, device);
    p.parts = parts.data<float>();
  }

  const dim3 tile_grid(unsigned(p.query_tiles), unsigned(p.groups * p.members),
                       unsigned(in.q.size(0)));
  flash_prepare_kernel<T, D><<<tile_grid, 256, 0, stream>>>(
      p, heads<const T>(o), heads<const T>(d_o), heads<T>(to.dq), lse.data<float>());
  cuda::check_launch("flash attention: row sums");

  Maps maps{hopper::tensor_map(in.q, S::kQueries), hopper::tensor_map(d_o, S::kQueries),
            hopper::tensor_map(in.k, kKeys),       hopper::tensor_map(in.v, kKeys),
            hopper::tensor_map(to.dq, 64),         hopper::tensor_map(to.dk, kKeys),
            hopper::tensor_map(to.dv, kKeys)};
  auto kernel = flash_backward_kernel<T, D>;
  check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Memory<D>::kBytes),
      "flash attention: asking for shared memory");
  int works = p.pairs * p.key_blocks;
  kernel<<<unsigned(std::min(works, processors)), kThreads, Memory<D>::kBytes, stream>>>(maps, p);
  cuda::check_launch("flash attention: backward");
  if (parts) {
    cuda::launch_early<flash_query_sums_kernel<T, D>>(tile_grid, 256, stream, p,
                                                      heads<const T>(to.dq));
  }
  return parts;
}

/// The copy engine wants strides that move.
bool moves(const Tensor& x) {
  for (int d = 0; d < x.rank(); ++d)
    if (x.size(d) > 1 && x.strides()[d] <= 0) return false;
  return true;
}

}  // namespace

bool flash_backward_hopper_fits(const FlashInputs& in, const Tensor& d_o) {
  if (in.lengths || in.threshold) return false;
  return in.q.device().is_cuda() && hopper::is_hopper(in.q.device()) && moves(in.q) &&
         moves(in.k) && moves(in.v) && moves(d_o);
}

Tensor flash_backward_hopper(const FlashInputs& in, const Tensor& o, const Tensor& lse,
                             const Tensor& d_o, const FlashGradients& to, bool wants_sums) {
  auto run = [&]<class T>() {
    return in.q.size(-1) == 64 ? launch<T, 64>(in, o, lse, d_o, to, wants_sums)
                               : launch<T, 128>(in, o, lse, d_o, to, wants_sums);
  };
  return in.q.dtype() == DType::bf16 ? run.operator()<bf16>() : run.operator()<f16>();
}

#else

bool flash_backward_hopper_fits(const FlashInputs&, const Tensor&) { return false; }
Tensor flash_backward_hopper(const FlashInputs& in, const Tensor&, const Tensor&, const Tensor&,
                             const FlashGradients&, bool) {
  fail("flash attention needs a GPU, got ", in.q.describe());
}

#endif

}  // namespace gradus
