#pragma once
// The warpgroup of flash_backward_hopper.cu that copies. Its warps:
//
//   0      one thread loads K, V of a piece of work, then Q, dO, lse, δ of tile after tile
//   1, 3   add dQ of the first, of the second warpgroup that computes
//   2      one thread publishes what was added, and stores dK, dV
//
// dQ in one order. A slab is 64 queries × 64 columns of dQ: of a tile it is half of its rows (d = 64) or
// of its columns (d = 128), and one warpgroup computes it. Block j of the keys adds its slabs to the sums
// in memory when the turn of the tile is j:
//
//   j = 0       stores the slab (nothing need be zeroed before)
//   0 < j       waits for turn j, then the copy engine adds in the L2 cache
//   j the last  adds too, fetches the sum back, rounds it to 16 bits and stores it as dq
//
// and the turn becomes j + 1. A slab in shared memory holds its row r as eight chunks of 32 bytes, chunk c
// at place c ^ (r % 8): four rows of a warp's results then fall into different banks.
#include "ops/flash_backward_tiles.h"
#include "ops/mma.h"

#if defined(GRADUS_SM90A)

namespace gradus::flash_gradients {

// ---- warp 0

template <int D>
__device__ void load_keys(const Maps& maps, Memory<D> at, int slot, const Work& work) {
  using S = Tiles<D>;
  hopper::expect(at.keys_full(slot), 2 * S::kKeyTile);
  for (int c = 0; c < S::kPanels; ++c) {
    hopper::Corner corner{64 * c, work.block * kKeys, 0, work.group, work.batch};
    hopper::load(at.k(slot) + c * S::kKeyPanel, maps.k, at.keys_full(slot), corner);
    hopper::load(at.v(slot) + c * S::kKeyPanel, maps.v, at.keys_full(slot), corner);
  }
}

/// One thread. The number of the piece after this one is asked for early: the answer takes a while.
template <int D>
__device__ void load_inputs(const Problem& p, const Maps& maps, Memory<D> at) {
  using S = Tiles<D>;
  Ring<S::kKeyStages> keys;
  Ring<S::kStages> rows;
  int next = atomicAdd(p.next_work, 1);
  for (;; keys.advance()) {
    const int index = next;
    hopper::wait(at.keys_empty(keys.at), keys.phase ^ 1);
    store_int(at.work(keys.at), index);
    if (index >= p.works()) break;
    Work work(p, index);
    load_keys(maps, at, keys.at, work);
    next = atomicAdd(p.next_work, 1);
    each_tile<D>(p, work, [&](int tile, int m, int number) {
      const uint32_t full = at.rows_full(rows.at);
      hopper::wait(at.rows_empty(rows.at), rows.phase ^ 1);
      hopper::expect(full, 2 * S::kQueryTile + 2 * S::kRowNumbers);
      for (int c = 0; c < S::kPanels; ++c) {
        hopper::Corner corner{64 * c, tile * S::kQueries, m, work.group, work.batch};
        hopper::load(at.q(rows.at) + c * S::kQueryPanel, maps.q, full, corner);
        hopper::load(at.d_o(rows.at) + c * S::kQueryPanel, maps.d_o, full, corner);
      }
      const int64_t row = int64_t(number) * S::kQueries;
      hopper::load_bytes(at.lse(rows.at), p.lse + row, S::kRowNumbers, full);
      hopper::load_bytes(at.delta(rows.at), p.delta + row, S::kRowNumbers, full);
      rows.advance();
    });
  }
  hopper::arrive(at.keys_full(keys.at));  // with the number of no work
}

// ---- turns

/// Waits for turn `mine`, and for what was copied before it was given.
__device__ inline void wait_turn(const int* turn, int mine) {
  int v;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(turn) : "memory");
  } while (v != mine);
  hopper::fence_async_global();
}
__device__ inline void give_turn(int* turn, int to) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(to) : "memory");
}

// ---- warp 2

/// One thread. To publish takes longer than to add: a release waits for an answer from memory. So the
/// warps that add leave it to this one. dK and dV lie where K and V lay.
template <int D>
__device__ void publish(const Problem& p, const Maps& maps, Memory<D> at) {
  using S = Tiles<D>;
  uint32_t phase = 0;
  for (Ring<S::kKeyStages> keys;; keys.advance()) {
    const int index = wait_work(at, keys);
    if (index >= p.works()) break;
    Work work(p, index);
    each_tile<D>(p, work, [&](int tile, int, int number) {
      if (work.block == S::last_block(p, tile)) return;
      hopper::wait(at.slabs_added(), phase);
      phase ^= 1;
      give_turn(p.turns + number, work.block + 1);
      hopper::arrive(at.slabs_published());
    });
    hopper::wait(at.keys_done(keys.at), keys.phase);
    for (int c = 0; c < S::kPanels; ++c) {
      hopper::Corner corner{64 * c, work.block * kKeys, 0, work.group, work.batch};
      hopper::store(maps.dk, at.k(keys.at) + c * S::kKeyPanel, corner);
      hopper::store(maps.dv, at.v(keys.at) + c * S::kKeyPanel, corner);
    }
    hopper::commit_stores();
    hopper::wait_stores();
    hopper::arrive(at.keys_empty(keys.at));
  }
}

// ---- warps 1 and 3

/// One thread: adds the slab to `sum`, or stores it there if it is the first.
__device__ inline void add_slab(float* sum, uint32_t slab, bool first) {
  first ? hopper::store_bytes(sum, slab, kSlab) : hopper::add_floats(sum, slab, kSlab);
  hopper::commit_stores();
}

/// One thread: adds the slab to `sum` and fetches the sum back to its place.
__device__ inline void fetch_sum(float* sum, uint32_t slab, uint32_t back) {
  add_slab(sum, slab, false);
  hopper::wait_writes();
  hopper::expect(back, kSlab);
  hopper::load_bytes(slab, sum, kSlab, back);
}

/// One thread: stores the rounded slab as dq, and gives its place back.
__device__ inline void store_slab(const CUtensorMap& dq, uint32_t slab, hopper::Corner to,
                                  uint32_t empty) {
  hopper::store(dq, slab, to);
  hopper::commit_stores();
  hopper::wait_stores();
  hopper::arrive(empty);
}

/// A warp: the slab times `scale` in 16 bits, as a panel of 64 rows, into the first half of its place.
/// Eight rows are read before the place of their results, further up, is written.
template <class T>
__device__ void round_slab(uint32_t slab, float scale) {
  int lane = threadIdx.x % 32, chunk = lane % 8;
#pragma unroll 1
  for (int first = lane / 8; first < 64; first += 8) {
    uint32_t packed[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int row = first + 4 * i;
      uint32_t from = slab + row * 256 + ((chunk ^ (row & 7)) << 5);
      float4 a = load4(from), b = load4(from + 16);
      packed[i][0] = mma::pack<T>(a.x * scale, a.y * scale);
      packed[i][1] = mma::pack<T>(a.z * scale, a.w * scale);
      packed[i][2] = mma::pack<T>(b.x * scale, b.y * scale);
      packed[i][3] = mma::pack<T>(b.z * scale, b.w * scale);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int row = first + 4 * i;
      store4(slab + row * 128 + ((chunk ^ (row & 7)) << 4), packed[i]);
    }
    __syncwarp();
  }
  hopper::fence_async();
  __syncwarp();
}

/// A warp that adds the slabs of warpgroup `half`.
template <class T, int D>
__device__ void add_queries(const Problem& p, const Maps& maps, Memory<D> at, int half) {
  using S = Tiles<D>;
  const bool elected = threadIdx.x % 32 == 0;
  uint32_t added_phase = 0, back_phase = 0;
  Ring<kSlabStages> slabs;
  for (Ring<S::kKeyStages> keys;; keys.advance()) {
    const int index = wait_work(at, keys);
    if (index >= p.works()) break;
    __syncwarp();
    hopper::arrive_for_warp(at.keys_empty(keys.at));
    Work work(p, index);
    each_tile<D>(p, work, [&](int tile, int m, int number) {
      const bool begun = work.block > 0, last = work.block == S::last_block(p, tile);
      float* sum = p.sums + (int64_t(number) * 2 + half) * (kSlab / 4);
      const uint32_t slab = at.slab(half, slabs.at), empty = at.slab_empty(half, slabs.at);
      if (begun) wait_turn(p.turns + number, work.block);
      hopper::wait(at.slab_full(half, slabs.at), slabs.phase);
      __syncwarp();  // lane 0 lets turn and barrier go on, which a lane that still waits would miss
      if (elected && !last) {
        add_slab(sum, slab, !begun);
        hopper::wait_stores();
        hopper::arrive(empty);
        hopper::wait_writes();
        hopper::wait(at.slabs_published(), added_phase ^ 1);
        hopper::arrive(at.slabs_added());
      }
      if (!last) added_phase ^= 1;
      if (last && begun) {
        if (elected) fetch_sum(sum, slab, at.slab_back(half));
        hopper::wait(at.slab_back(half), back_phase);
        back_phase ^= 1;
      }
      if (last) {
        round_slab<T>(slab, p.scale);
        const int row = D == 64 ? 64 * half : 0, column = D == 64 ? 0 : 64 * half;
        const hopper::Corner to{column, tile * S::kQueries + row, m, work.group, work.batch};
        if (elected) store_slab(maps.dq, slab, to, empty);
      }
      __syncwarp();
      if (hopper::kWarpArrivals > 1 && !elected) hopper::arrive(empty);  // lane 0 has
      slabs.advance();
    });
  }
}

}  // namespace gradus::flash_gradients
#endif
