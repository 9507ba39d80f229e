// The forward of flash attention (derived in ops/flash_attention.cu) on a Hopper GPU (ops/hopper.h has
// the instructions, ops/flash_forward_tiles.h who works on what).
//
// A warpgroup owns 64 queries and walks over tiles of 128 keys and values:
//
//   S = Q Kᵀ      64 × 128   wgmma, both operands in shared memory, S in registers
//   P = 2^{cS−m}  64 × 128   in registers; rounded to 16 bits it is operand A of the next product
//   O = O + P V   64 × D     wgmma, V in shared memory and read across its rows
//
// What there is to balance. A score costs 4 D flops of the tensor cores, 1/16 clock of a multiprocessor at
// D = 64, and one exponential, 1/16 clock of its special function units: neither may wait for the other.
//
//   D = 64: two blocks of two warpgroups on a multiprocessor, 128 registers a thread (S 64, O 32). While
//           one waits for its product, others are in their softmax, and while one block starts or ends,
//           the other computes. Half of P V runs beside the second half of the exponentials.
//
//             products      S │           │ P V of keys 0 … 63 │ P V of 64 … 127 │
//             softmax         │ max, 2^x  │ 2^x                │                 │
//
//   D = 128: one persistent block, 240 registers. A warpgroup overlaps with itself: the softmax of a tile
//           runs beside P V of the tile before. The two warpgroups take turns in starting products.
//
//             products      S₁, P₀ V₀ │ S₂, P₁ V₁ │ …
//             softmax         1       │   2       │ …
//
// The maximum is let lag. Any m will do in P = 2^{cS − m} and l = Σ P, as long as nothing overflows: m is
// raised, and O and l rescaled, only where a row's maximum grew by more than 8. P ≤ 2⁸ is no less exact
// than P ≤ 1, and after the first tiles hardly a warp rescales at all.
//
// Masks touch only the tiles that the first query of a warpgroup does not see to the end.
#include "ops/flash_forward_hopper.h"

#include <cfloat>

#include "ops/flash_forward_tiles.h"
#include "ops/mma.h"

namespace gradus {

#if defined(__CUDACC__)
namespace {

using namespace flash_tiles;

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

#if defined(GRADUS_SM90A)

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
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

/// The first of a thread's two rows among the 64 of its warpgroup; the other is 8 further.
__device__ inline int row_of_thread() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }

/// What a thread knows of its two rows. Element i of its scores belongs to row i / 2 % 2.
struct Softmax {
  float m[2] = {-FLT_MAX,
                -FLT_MAX};  // the maximum of c S, or a little less; finite without a key too
  float l[2] = {0, 0};      // Σ 2^{c S − m} over this thread's columns
  float shrink[2];          // what raise() multiplied l with

  /// Takes the scores s into account. True if o is to be multiplied with `shrink`, the same answer in all
  /// of the warp.
  template <int R>
  __device__ bool raise(const float (&s)[R], float c) {
    bool grows = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top[2] = {s[2 * half], s[2 * half + 1]};
#pragma unroll
      for (int n = 4; n < R; n += 4)
#pragma unroll
        for (int e = 0; e < 2; ++e) top[e] = fmaxf(top[e], s[n + 2 * half + e]);
      float next = row_max(fmaxf(top[0], top[1])) * c;
      bool far = next - m[half] > 8;
      next = far ? next : m[half];
      shrink[half] = far ? power_of_two(m[half] - next) : 1;
      m[half] = next;
      l[half] *= shrink[half];
      grows = grows || far;
    }
    return __any_sync(~0u, grows);
  }

  /// s[i] ← 2^{c s[i] − m} for kFrom ≤ i < kTo.
  template <int kFrom, int kTo, int R>
  __device__ void exponentiate(float (&s)[R], float c) {
    float sum[2] = {0, 0};
#pragma unroll
    for (int i = kFrom; i < kTo; ++i)
      sum[i / 2 % 2] += s[i] = power_of_two(fmaf(s[i], c, -m[i / 2 % 2]));
    l[0] += sum[0], l[1] += sum[1];
  }
};

/// o ← o · factor, row by row.
template <int R>
__device__ void scale_rows(float (&o)[R], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < R; ++i) o[i] *= factor[i / 2 % 2];
}

/// A warpgroup at its 64 queries.
template <class T, class L>
struct Walk {
  static constexpr int D = L::D, N = kKeys;
  const L& at;
  const Problem& p;
  int warpgroup;
  float o[D / 2], s[N / 2];
  uint32_t probabilities[N / 16][4];  // as operand A
  Softmax softmax;
  int first, buffer;              // of the queries
  Turn<L::kStages> turn{}, last;  // of this tile of keys, and of the one before

  // ---- the parts of a step

  /// The first n columns of the scores.
  template <int n>
  __device__ float (&columns())[n / 2] {
    return reinterpret_cast<float(&)[n / 2]>(s);
  }

  /// s ← Q Kᵀ for the first n keys of the tile, started.
  template <int n>
  __device__ void start_scores() {
    hopper::wait(at.keys_full(turn.stage), turn.phase);
    uint64_t q = hopper::along(at.queries(buffer, warpgroup)),
             k = hopper::along(at.keys(turn.stage));
    hopper::fence();
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      hopper::multiply<T, hopper::kAlong, hopper::kAlong>(
          columns<n>(), hopper::further(q, i / 4 * kRows * 128 + i % 4 * 32),
          hopper::further(k, i / 4 * N * 128 + i % 4 * 32), i > 0);
    hopper::commit();
  }

  /// o ← o + P V for keys from … to − 1 of a tile, started.
  template <int from, int to>
  __device__ void start_output(Turn<L::kStages> tile) {
    if (from == 0) hopper::wait(at.values_full(tile.stage), tile.phase);
    uint64_t v = hopper::across(at.values(tile.stage), N * 128);
    hopper::fence();
#pragma unroll
    for (int i = from / 16; i < to / 16; ++i)
      hopper::multiply<T, hopper::kAcross>(o, probabilities[i], hopper::further(v, 2048 * i), true);
    hopper::commit();
  }

  /// This warp has read a tile.
  __device__ void release(uint32_t empty) {
    if (threadIdx.x % 32 == 0) hopper::arrive(empty);
  }

  /// −∞ at those of the first n keys that a row does not see; the tile starts with key `start`.
  template <int n>
  __device__ void hide(int start) {
    int row = first + row_of_thread(), column = start + threadIdx.x % 4 * 2;
    int low = p.seen(row) - column, high = p.seen(row + 8) - column;
#pragma unroll
    for (int i = 0; i < n / 2; ++i)
      s[i] = i / 4 * 8 + i % 2 >= (i / 2 % 2 ? high : low) ? -INFINITY : s[i];
  }

  /// P of keys from … to − 1, from s after exponentiate().
  template <int from, int to>
  __device__ void round() {
#pragma unroll
    for (int i = from / 4; i < to / 4; ++i)
      probabilities[i / 4][i % 4] = mma::pack<T>(s[2 * i], s[2 * i + 1]);
  }

  // ---- D = 64

  /// All of one tile of keys, of which the first n count.
  template <int n, bool masked>
  __device__ void step(int start) {
    start_scores<n>();
    hopper::wait<0>(s);
    release(at.keys_empty(turn.stage));
    if constexpr (masked) hide<n>(start);
    if (softmax.raise(columns<n>(), p.scale)) scale_rows(o, softmax.shrink);
    softmax.template exponentiate<0, n / 4>(s, p.scale);
    round<0, n / 2>();
    start_output<0, n / 2>(turn);
    softmax.template exponentiate<n / 4, n / 2>(s, p.scale);
    round<n / 2, n>();
    start_output<n / 2, n>(turn);
    hopper::wait<0>(o);
    release(at.values_empty(turn.stage));
    turn = turn.next();
  }

  // ---- D = 128

  /// The first tile of keys: leaves its P.
  __device__ void begin(int start) {
    my_turn();
    start_scores<N>();
    your_turn();
    hopper::wait<0>(s);
    release(at.keys_empty(turn.stage));
    hide<N>(start);
    softmax.raise(s, p.scale);
    softmax.template exponentiate<0, N / 2>(s, p.scale);
    round<0, N>();
    last = turn, turn = turn.next();
  }
  /// S of a tile beside P V of the tile before.
  template <bool masked>
  __device__ void advance(int start) {
    my_turn();
    start_scores<N>();
    start_output<0, N>(last);
    your_turn();
    hopper::wait<1>(s);
    release(at.keys_empty(turn.stage));
    if constexpr (masked) hide<N>(start);
    bool rescale = softmax.raise(s, p.scale);
    softmax.template exponentiate<0, N / 2>(s, p.scale);
    if (rescale) {  // a branch: the compiler would move the wait before the exponentials
      hopper::wait<0>(o);
      scale_rows(o, softmax.shrink);
    } else {
      hopper::wait<0>(o);
    }
    release(at.values_empty(last.stage));
    round<0, N>();
    last = turn, turn = turn.next();
  }
  /// P V of the last tile.
  __device__ void end() {
    start_output<0, N>(last);
    hopper::wait<0>(o);
    release(at.values_empty(last.stage));
  }

  __device__ void my_turn() {
    if constexpr (L::kPersistent) hopper::meet(4 + warpgroup, 2 * 128);
  }
  __device__ void your_turn() {
    if constexpr (L::kPersistent) hopper::signal(5 - warpgroup, 2 * 128);
  }

  // ---- the walk

  /// A tile that only the other warpgroup needs.
  __device__ void skip() {
    my_turn();
    your_turn();
    hopper::wait(at.keys_full(turn.stage), turn.phase);
    release(at.keys_empty(turn.stage));
    hopper::wait(at.values_full(turn.stage), turn.phase);
    release(at.values_empty(turn.stage));
    turn = turn.next();
  }

  /// o ← Σ 2^{c S − m} V over the tiles, of `tiles`, that the 64 queries from `first` on see. Before tile j
  /// comes ahead(j).
  template <class Ahead>
  __device__ void run(int tiles, Ahead ahead) {
    softmax = Softmax{};
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = 0;
    int seen = p.seen(first, kRows), mine = (seen + N - 1) / N,
        whole = min(p.seen(first) / N, mine);
    int j = tiles - 1;
    for (; j >= mine; --j) ahead(j), skip();
    if constexpr (L::kPersistent) {
      if (mine == 0) return;
      begin(j * N);
      for (--j; j >= whole; --j) advance<true>(j * N);
      for (; j >= 0; --j) advance<false>(j * N);
      end();
    } else {
      if (j >= 0 && seen - j * N <= N / 2) ahead(j), step<N / 2, true>(j * N), --j;
      for (; j >= whole; --j) ahead(j), step<N, true>(j * N);
      for (; j >= 0; --j) ahead(j), step<N, false>(j * N);
    }
  }

  /// Writes the results: the log-sum-exp of each row, and O by the copy engine, from where the queries lay.
  __device__ void finish(const Item& item, const CUtensorMap& out) {
    if (first >= p.tq) return;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float l = row_sum(softmax.l[half]);
      factor[half] = l == 0 ? 0 : __fdividef(1, l);
      int i = first + row_of_thread() + 8 * half;
      int64_t head = (int64_t(item.batch) * p.groups + item.group) * p.members + item.member;
      if (threadIdx.x % 4 == 0 && i < p.tq)
        p.lse[head * p.tq + i] = l == 0 ? -INFINITY : (softmax.m[half] + __log2f(l)) * kLn2;
    }
    scale_rows(o, factor);
    uint32_t memory = at.queries(buffer, warpgroup);
    hopper::meet(1 + warpgroup, 128);  // all four warps have read the queries
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      uint32_t chunk = n % 8 + lane / 16,
               to = memory + n / 8 * kRows * 128 + row * 128 + ((chunk ^ row % 8) << 4);
      hopper::store_tiles(
          to, mma::pack<T>(o[4 * n], o[4 * n + 1]), mma::pack<T>(o[4 * n + 2], o[4 * n + 3]),
          mma::pack<T>(o[4 * n + 4], o[4 * n + 5]), mma::pack<T>(o[4 * n + 6], o[4 * n + 7]));
    }
    hopper::fence_async();
    hopper::meet(1 + warpgroup, 128);
    if (threadIdx.x % 128 != 0) return;
    for (int panel = 0; panel < L::kPanels; ++panel)
      hopper::store(out, memory + panel * kRows * 128,
                    {panel * hopper::kPanel, first, item.member, item.group, item.batch});
    hopper::commit_stores();
  }
};

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
