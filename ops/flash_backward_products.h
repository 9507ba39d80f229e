#pragma once
// The warpgroups of flash_backward_hopper.cu that compute: each has 64 of the 128 keys of its block.
//
// Scores are computed transposed, keys as rows: Sᵀ = K Qᵀ, dPᵀ = V dOᵀ. Then Pᵀ and dSᵀ, rounded to 16
// bits, are in registers the A operand of the products that follow, dV += Pᵀ dO and dK += dSᵀ Q. Only
// dQ = dS K sums over the keys of both warpgroups: dS goes through shared memory, each writes its 64
// columns, both meet, and each computes a slab. Of one tile:
//
//   tensor cores   dP ───────── dV ──────────────── dK ────────── dQ ─ S of the next tile
//   other units    P = 2^…      dS = P (dP − δ)     dS stored       meet      dQ stored
//
// S of the next tile runs while dQ is stored, and dP while 2^… is computed. What is lost: the warpgroups
// meet in every tile, so their exponentials fall into the same time, when dP is all that the tensor cores
// have to do.
#include "ops/exp2.h"
#include "ops/flash_backward_tiles.h"
#include "ops/hopper_products.h"
#include "ops/mma.h"

#if defined(GRADUS_SM90A)

namespace gradus::flash_gradients {

constexpr int kComputing = 256;  // threads

/// c (64 × N) ← a bᵀ, sums over D; `a` and `b` are tiles with panels a_panel and b_panel bytes apart.
template <class T, int D, int R>
__device__ __forceinline__ void multiply_rows(float (&c)[R], uint32_t a, int a_panel, uint32_t b,
                                              int b_panel) {
  const uint64_t left = hopper::along(a), right = hopper::along(b);
  hopper::fence();
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    hopper::multiply<T, hopper::kAlong, hopper::kAlong>(
        c, hopper::further(left, k / 4 * a_panel + k % 4 * 32),
        hopper::further(right, k / 4 * b_panel + k % 4 * 32), k > 0);
  hopper::commit();
}

/// c (64 × D) ← [c +] a b: kSteps steps of 16 rows of b from b on, with A in registers.
template <class T, int kSteps, int R>
__device__ __forceinline__ void add_product(float (&c)[R], const uint32_t (&a)[kSteps][4],
                                            uint32_t b, int b_panel, bool add) {
  const uint64_t right = hopper::across(b, b_panel);
  hopper::fence();
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    hopper::multiply<T, hopper::kAcross>(c, a[k], hopper::further(right, k * 2048), add || k > 0);
  hopper::commit();
}

/// Columns 16 k … 16 k + 15 of c as operand A.
template <class T, int R>
__device__ __forceinline__ void pack_step(uint32_t (&a)[4], const float (&c)[R], int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = mma::pack<T>(c[8 * k + 2 * i], c[8 * k + 2 * i + 1]);
}

/// P = 2^(scale S − lse)
template <int R>
__device__ __forceinline__ void exponentials(float (&s)[R], uint32_t lse, float scale) {
  int t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < R / 4; ++n) {
    float2 l = load2(lse + (8 * n + 2 * t) * 4);
    s[4 * n + 0] = exp2_fast(fmaf(s[4 * n + 0], scale, -l.x));
    s[4 * n + 1] = exp2_fast(fmaf(s[4 * n + 1], scale, -l.y));
    s[4 * n + 2] = exp2_fast(fmaf(s[4 * n + 2], scale, -l.x));
    s[4 * n + 3] = exp2_fast(fmaf(s[4 * n + 3], scale, -l.y));
  }
}

/// P = 0 in the columns below `low` (rows g of each warp) and `high` (rows g + 8).
template <int R>
__device__ __forceinline__ void hide(float (&s)[R], int low, int high) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < R / 4; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (8 * n + 2 * t + e % 2 < (e < 2 ? low : high)) s[4 * n + e] = 0;
}

/// P = 0 where key > query + Tk − Tq, or key ≥ Tk. The columns are queries from `query` on; `key` is that
/// of row g of this warp; `partial`: the block reaches beyond the last key.
template <int R>
__device__ __forceinline__ void hide_unseen(float (&s)[R], const Problem& p, int key, bool partial,
                                            int query) {
  const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4;
  const int shift = p.tq - p.tk - query;  // a key is seen from column key + shift on
  if (partial || (p.causal && key - g - 16 * warp + 63 + shift > 0)) {
    const int low = p.causal ? key + shift : 0, high = p.causal ? key + 8 + shift : 0;
    hide(s, key < p.tk ? low : 2 * R, key + 8 < p.tk ? high : 2 * R);
  }
}

/// dS = P ⊙ (dP − δ), in place of P, for columns 8 kFirst … 8 kEnd − 1.
template <int kFirst, int kEnd, int R>
__device__ __forceinline__ void score_gradients(float (&s)[R], const float (&dp)[R],
                                                uint32_t delta) {
  int t = threadIdx.x % 4;
#pragma unroll
  for (int n = kFirst; n < kEnd; ++n) {
    float2 d = load2(delta + (8 * n + 2 * t) * 4);
    s[4 * n + 0] *= dp[4 * n + 0] - d.x;
    s[4 * n + 1] *= dp[4 * n + 1] - d.y;
    s[4 * n + 2] *= dp[4 * n + 2] - d.x;
    s[4 * n + 3] *= dp[4 * n + 3] - d.y;
  }
}

/// Writes dSᵀ (64 keys × queries) of this warpgroup as dS into a panel of 64 keys.
template <int kSteps>
__device__ __forceinline__ void store_transposed(uint32_t panel, const uint32_t (&ds)[kSteps][4]) {
  int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  int row = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
  uint32_t address = panel + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    hopper::store_tiles_transposed(address + k * 2048, ds[k][0], ds[k][1], ds[k][2], ds[k][3]);
}

/// Writes factor · c (64 × D) as 64 rows of a tile.
template <class T, int R>
__device__ __forceinline__ void store_rows(uint32_t tile, int panel, const float (&c)[R],
                                           float factor) {
  int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = 16 * warp + lane % 16;
#pragma unroll
  for (int k = 0; k < R / 8; ++k) {
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = mma::pack<T>(c[8 * k + 2 * i] * factor, c[8 * k + 2 * i + 1] * factor);
    int chunk = k % 4 * 2 + lane / 16;
    hopper::store_tiles(tile + k / 4 * panel + row * 128 + ((chunk ^ (row & 7)) << 4), a[0], a[1],
                        a[2], a[3]);
  }
}

/// Writes dQ (64 × 64) as a slab.
__device__ __forceinline__ void store_slab(uint32_t slab, const float (&dq)[32]) {
  int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  uint32_t row = slab + (16 * warp + g) * 256 + t * 8;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    store2(row + ((n ^ g) << 5), dq[4 * n], dq[4 * n + 1]);
    store2(row + 2048 + ((n ^ g) << 5), dq[4 * n + 2], dq[4 * n + 3]);
  }
}

__device__ __forceinline__ void arrive_warp(uint32_t barrier) {
  __syncwarp();
  hopper::arrive_for_warp(barrier);
}

/// dV += Pᵀ dO; s ← dS; dK += dSᵀ Q, which is left running; ds ← dSᵀ rounded. Half of the queries at a
/// time: the tensor cores compute dV of one half while dS of that half is computed beside them.
template <class T, int D, int kSteps, int R>
__device__ __forceinline__ void add_keys(float (&dk)[D / 2], float (&dv)[D / 2], float (&s)[R],
                                         float (&dp)[R], uint32_t (&ds)[kSteps][4], uint32_t q,
                                         uint32_t d_o, uint32_t delta, bool add) {
  constexpr int kHalf = kSteps / 2, kPanel = Tiles<D>::kQueryPanel;
  uint32_t p0[kHalf][4], p1[kHalf][4];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) pack_step<T>(p0[i], s, i);
  add_product<T>(dv, p0, d_o, kPanel, add);
  hopper::wait<1>(dp);
  score_gradients<0, kSteps>(s, dp, delta);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) pack_step<T>(ds[i], s, i);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) pack_step<T>(p1[i], s, kHalf + i);
  add_product<T>(dv, p1, d_o + kHalf * 2048, kPanel, true);
  score_gradients<kSteps, 2 * kSteps>(s, dp, delta);
#pragma unroll
  for (int i = kHalf; i < kSteps; ++i) pack_step<T>(ds[i], s, i);
  add_product<T>(dk, ds, q, kPanel, add);
  hopper::wait<1>(dv);  // frees the registers of P
}

/// dq (64 × 64) ← dS K over all 128 keys: half of the queries (d = 64) or of the columns (d = 128).
template <class T, int D>
__device__ __forceinline__ void multiply_scores(float (&dq)[32], uint32_t ds, uint32_t k,
                                                int half) {
  using S = Tiles<D>;
  const uint64_t left = hopper::along(ds + (D == 64 ? half * 64 * 128 : 0));
  const uint64_t right = hopper::across(k + (D == 64 ? 0 : half * S::kKeyPanel), S::kKeyPanel);
  hopper::fence();
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i)
    hopper::multiply<T, hopper::kAlong, hopper::kAcross>(
        dq, hopper::further(left, i / 4 * S::kQueryPanel + i % 4 * 32),
        hopper::further(right, i * 2048), i > 0);
  hopper::commit();
}

/// dQ into a slab, for the warp that adds it.
template <int D>
__device__ __forceinline__ void hand_over(Memory<D> at, int half, Ring<kSlabStages> slabs,
                                          const float (&dq)[32]) {
  hopper::wait(at.slab_empty(half, slabs.at), slabs.phase ^ 1);
  store_slab(at.slab(half, slabs.at), dq);
  hopper::fence_async();
  arrive_warp(at.slab_full(half, slabs.at));
}

/// A warpgroup: all its work. Registers are scarce: a wait that seems early frees operands held in them.
template <class T, int D>
__device__ __forceinline__ void compute(const Problem& p, Memory<D> at, int half) {
  using S = Tiles<D>;
  constexpr int kSteps = S::kQueries / 16;
  const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4;
  const float scale = p.scale * kLog2e;
  const int mine = half * 64 * 128;  // bytes to my rows of K and V
  Ring<S::kStages> rows;
  Ring<kSlabStages> slabs;
  uint32_t phase = 0;  // of dS
  for (Ring<S::kKeyStages> keys;; keys.advance()) {
    const int index = wait_work(at, keys);
    if (index >= p.works()) break;
    Work work(p, index);
    int first = S::first_tile(p, work.block), tile = p.query_tiles - 1;
    int tiles = (p.query_tiles - first) * p.members, member = 0;
    int key = work.block * kKeys + half * 64 + 16 * warp + g;
    bool partial = (work.block + 1) * kKeys > p.tk;
    uint32_t k = at.k(keys.at), v = at.v(keys.at);

    float dk[D / 2], dv[D / 2], s[S::kQueries / 2];
    hopper::wait(at.rows_full(rows.at), rows.phase);
    multiply_rows<T, D>(s, k + mine, S::kKeyPanel, at.q(rows.at), S::kQueryPanel);
    hopper::wait<0>(s);
    int n = 0;
#pragma unroll 1
    do {
      const uint32_t q = at.q(rows.at), d_o = at.d_o(rows.at);
      float dp[S::kQueries / 2];
      multiply_rows<T, D>(dp, v + mine, S::kKeyPanel, d_o, S::kQueryPanel);
      exponentials(s, at.lse(rows.at), scale);
      hide_unseen(s, p, key, partial, tile * S::kQueries);
      uint32_t ds[kSteps][4];
      add_keys<T, D>(dk, dv, s, dp, ds, q, d_o, at.delta(rows.at), n > 0);

      hopper::wait(at.ds_empty(), phase ^ 1);
      store_transposed(at.ds(half), ds);
      hopper::fence_async();
      hopper::meet(1, kComputing);
      float dq[32];
      multiply_scores<T, D>(dq, at.ds(0), k, half);
      hopper::wait<1>(dk);

      Ring<S::kStages> next = rows;
      next.advance();
      // After the last tile S is computed once more, in vain: a branch here would make the compiler wait.
      // From K alone, for Q is given back below, before these products are done.
      bool more = n + 1 < tiles;
      if (more) hopper::wait(at.rows_full(next.at), next.phase);
      multiply_rows<T, D>(s, k + mine, S::kKeyPanel, more ? at.q(next.at) : k, S::kQueryPanel);
      hopper::wait<1>(dq);
      arrive_warp(at.ds_empty());
      hopper::arrive_for_warp(at.rows_empty(rows.at));
      hand_over(at, half, slabs, dq);
      slabs.advance();
      rows = next;
      phase ^= 1;
      if (++member == p.members) member = 0, --tile;
      hopper::wait<0>(s);
    } while (++n < tiles);
    hopper::pin(dk);
    hopper::pin(dv);
    hopper::meet(1, kComputing);  // both have read K
    store_rows<T>(k + mine, S::kKeyPanel, dk, p.scale);
    store_rows<T>(v + mine, S::kKeyPanel, dv, 1);
    hopper::fence_async();
    arrive_warp(at.keys_done(keys.at));
  }
}

}  // namespace gradus::flash_gradients
#endif
