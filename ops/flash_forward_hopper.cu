// The forward of flash attention (derived in ops/flash_attention.cu) on a Hopper GPU: the kernel, around what a
// warpgroup does (ops/flash_forward_walk.h), on which tiles (ops/flash_forward_tiles.h).
//
//   D = 64    two blocks of two warpgroups on a multiprocessor, one item a block. Thread 0 has the copy engine
//             bring the tiles. While one block starts or ends, the other computes.
//   D = 128   one block of three warpgroups, which stays: two compute, one item after the other, and have
//             most of the registers; the third brings the tiles, across the borders of items.
#include "ops/flash_forward_hopper.h"

#include "ops/flash_forward_walk.h"

namespace gradus {

#if defined(__CUDACC__)
namespace {

using namespace flash_tiles;

#if defined(GRADUS_SM90A)

/// A block with one item: the head blockIdx.x of chunk blockIdx.z. Thread 0 brings the tiles, one ahead of
/// its warpgroup.
template <class T, class L>
__device__ void one_item(const L& at, const Producer<L>& producer, const Problem& p,
                         const CUtensorMap& out) {
  int head = int(blockIdx.z) * p.chunk + int(blockIdx.x);
  if (head >= p.heads()) return;
  Item item(p, p.items() - 1 - int(blockIdx.y), head);
  int tiles = item.tiles(p), warpgroup = threadIdx.x / 128;
  Walk<T, L> walk{at, p, warpgroup};
  if (threadIdx.x == 0) {
    init_barriers(at);
    producer.send_queries(item, 0);
    producer.send_tile(item, tiles - 1, walk.turn);
  }
  __syncthreads();
  walk.first = item.first + warpgroup * kRows, walk.buffer = 0;
  hopper::wait(at.queries_full(0), 0);
  walk.run(tiles, [&](int j) {
    if (threadIdx.x == 0 && j > 0) producer.send_tile(item, j - 1, walk.turn.next());
  });
  walk.finish(item, out);
  hopper::wait_stores();
}

/// A block with many items.
template <class T, class L>
__device__ void many_items(const L& at, const Producer<L>& producer, const Problem& p,
                           const CUtensorMap& out) {
  int warpgroup = threadIdx.x / 128;
  if (threadIdx.x == 0) init_barriers(at);
  __syncthreads();
  if (warpgroup == kGroups) {
    hopper::shrink_registers<24>();
    if (threadIdx.x % 128 == 0) producer.send_items(p);
  } else {
    hopper::grow_registers<240>();
    Walk<T, L> walk{at, p, warpgroup};
    if (warpgroup == 1) hopper::signal(4, 2 * 128);  // the first turn is that of warpgroup 0
    for (Cursor cursor; cursor.valid(p); cursor.advance(p)) {
      Item item = cursor.item(p);
      walk.first = item.first + warpgroup * kRows, walk.buffer = cursor.number % 2;
      if (cursor.number > 0 && threadIdx.x % 128 == 0) {
        hopper::wait_stores();
        hopper::arrive(at.queries_empty(walk.buffer ^ 1));
      }
      hopper::wait(at.queries_full(walk.buffer), cursor.number / 2 % 2);
      walk.run(item.tiles(p), [](int) {});
      walk.finish(item, out);
    }
    hopper::wait_stores();
  }
}

#endif  // GRADUS_SM90A

template <class T, class L>
__global__ void __launch_bounds__(L::kThreads, L::kBlocks)
    flash_forward_hopper_kernel(const __grid_constant__ CUtensorMap q,
                                const __grid_constant__ CUtensorMap k,
                                const __grid_constant__ CUtensorMap v,
                                const __grid_constant__ CUtensorMap out,
                                const __grid_constant__ Problem p) {
#if defined(GRADUS_SM90A)
  extern __shared__ __align__(1024) unsigned char memory[];
  L at{uint32_t(__cvta_generic_to_shared(memory))};
  Producer<L> producer{at, q, k, v};
  if constexpr (L::kPersistent)
    many_items<T>(at, producer, p, out);
  else
    one_item<T>(at, producer, p, out);
#endif
}

/// How many heads have keys and values of 16 MB together: a third of the L2 cache.
template <int D>
int heads_of_chunk(const Problem& p) {
  int64_t groups = (int64_t(16) << 20) / (int64_t(p.tk) * D * 4);
  return int(std::min<int64_t>(std::max<int64_t>(groups, 1) * p.members, p.heads()));
}

unsigned divide_up(int a, int b) { return unsigned((a + b - 1) / b); }

template <class T, class L>
void launch(const FlashInputs& in, const Tensor& o, const Tensor& lse) {
  Problem p{.lse = lse.data<float>(),
            .batches = int(in.q.size(0)),
            .groups = int(in.q.size(1)),
            .members = int(in.q.size(2)),
            .tq = int(in.q.size(3)),
            .tk = int(in.k.size(2)),
            .chunk = 0,
            .scale = float(in.scale) * kLog2e,
            .causal = in.causal};
  p.chunk = heads_of_chunk<L::D>(p);
  auto kernel = flash_forward_hopper_kernel<T, L>;
  Device device = in.q.device();
  cudaStream_t stream = cuda::stream(device);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes),
        "flash attention: asking for shared memory");
  dim3 grid = L::kPersistent
                  ? dim3(unsigned(std::min(p.pairs() * p.heads(), cuda::multiprocessors(device))))
                  : dim3(unsigned(p.chunk), unsigned(p.items()), divide_up(p.heads(), p.chunk));
  kernel<<<grid, L::kThreads, L::kBytes, stream>>>(
      hopper::tensor_map(in.q, kRows), hopper::tensor_map(in.k, kKeys),
      hopper::tensor_map(in.v, kKeys), hopper::tensor_map(o, kRows), p);
  cuda::check_launch("flash attention forward");
}

template <class T>
void launch_for_size(const FlashInputs& in, const Tensor& o, const Tensor& lse) {
  if (in.q.size(-1) == 64)
    launch<T, Layout<64, 3, false>>(in, o, lse);
  else
    launch<T, Layout<128, 2, true>>(in, o, lse);
}

/// The copy engine wants strides that move.
bool moves(const Tensor& x) {
  for (int d = 0; d < x.rank(); ++d)
    if (x.size(d) > 1 && x.strides()[d] <= 0) return false;
  return true;
}

}  // namespace

bool flash_forward_hopper_fits(const FlashInputs& in, const Tensor& o) {
  if (in.lengths || in.threshold) return false;
  return in.q.device().is_cuda() && hopper::is_hopper(in.q.device()) && moves(in.q) &&
         moves(in.k) && moves(in.v) && moves(o) && flash_attention_reads(o);
}

void flash_forward_hopper(const FlashInputs& in, const Tensor& o, const Tensor& lse) {
  if (in.q.dtype() == DType::bf16)
    launch_for_size<bf16>(in, o, lse);
  else
    launch_for_size<f16>(in, o, lse);
}

#else

bool flash_forward_hopper_fits(const FlashInputs&, const Tensor&) { return false; }
void flash_forward_hopper(const FlashInputs& in, const Tensor&, const Tensor&) {
  fail("flash attention needs a Hopper GPU, got ", in.q.describe());
}

#endif

}  // namespace gradus
