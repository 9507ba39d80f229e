#pragma once
// A warpgroup at its 64 queries: the walk over tiles of 128 keys and values that is the forward of flash
// attention on a Hopper GPU.
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
// Masks touch only the tiles that the first query of a warpgroup does not see to the end.
#include "ops/flash_forward_tiles.h"
#include "ops/flash_softmax.h"

#if defined(__CUDACC__)
#include "ops/mma.h"

namespace gradus::flash_tiles {

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

#if defined(GRADUS_SM90A)

/// The first of a thread's two rows among the 64 of its warpgroup; the other is 8 further.
__device__ inline int row_of_thread() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }

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
          columns<n>(), q + (i / 4 * kRows * 128 + i % 4 * 32) / 16,
          k + (i / 4 * N * 128 + i % 4 * 32) / 16, i > 0);  // in units of 16 bytes
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
      hopper::multiply<T, hopper::kAcross>(o, probabilities[i], v + 2048 * i / 16, true);
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
    hopper::pin(s);  // the exponentials come before the wait, which all warps do in one place
    hopper::wait<0>(o);
    if (rescale) scale_rows(o, softmax.shrink);
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

#endif  // GRADUS_SM90A

}  // namespace gradus::flash_tiles
#endif
