#pragma once
// How the backward of flash attention is cut into pieces on a Hopper GPU, who does them, and where they
// lie in the shared memory of their block: what flash_backward_hopper.cu computes with.
//
// A piece of work is a block of 128 keys of one head. It visits the tiles of queries that see it, the
// last one first, and of each tile the query heads that share the keys.
//
//              keys 0      1      2      3
//   queries 0       ◣                            block 0: 4 tiles of queries     ◣ masked
//           1       ■      ◣                     block 1: 3 tiles                ■ all seen
//           2       ■      ■      ◣              dK, dV: the sum of a column, in registers
//           3       ■      ■      ■      ◣       dQ: the sum of a row, in memory, in order of blocks
//
// Order of work. Pieces are numbered chunk of heads by chunk, in a chunk block 0 of every head, then block
// 1 …: long pieces first, and when block j of a head begins, block j − 1 is on its way. A counter in
// memory hands the numbers out. So whoever waits for dQ of a lower block waits for one that has begun, and
// nothing can lock up. The tensors of a chunk should fit the L2 cache.
#include <cstdint>

#include "ops/hopper.h"

#if defined(__CUDACC__)

namespace gradus::flash_gradients {

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kKeys = 128;          // of a block; each of two warpgroups has half of them
constexpr int kThreads = 3 * 128;   // one warpgroup that copies, two that compute
constexpr int kSlab = 64 * 64 * 4;  // bytes: a slab is 64 × 64 floats of dQ
constexpr int kSlabStages = 2;      // slabs of a warpgroup between computing and adding

/// Numbers of the problem, and its workspace.
struct Problem {
  float* sums;         // (B, H, query tiles, 2) slabs: dQ so far
  float *lse, *delta;  // (B, H, query tiles · kQueries): lse · log₂e, ∞ where P is to be 0; δ
  float* parts;        // (B, query tiles, H, 3, d): sums of dQ, dK, dV; or null
  int *turns, *next_work;  // how many blocks have added to the slabs of a tile; the counter
  int groups, members, tq, tk, query_tiles, key_blocks;
  int pairs, chunk;  // batch · groups; heads of keys in a chunk
  float scale;
  bool causal;

  __device__ int works() const { return pairs * key_blocks; }
  /// Where the sums (3, d) of a tile of a head go.
  __device__ float* part(int batch, int tile, int head, int d) const {
    return parts + ((int64_t(batch) * query_tiles + tile) * groups + head) * 3 * d;
  }
};

/// The operands as the copy engine sees them.
struct Maps {
  CUtensorMap q, d_o, k, v, dq, dk, dv;
};

/// Sizes in bytes where nothing else is said. Scores and their gradients of a tile live in registers
/// beside dK and dV: at d = 128 there is room for half as many queries.
template <int D>
struct Tiles {
  static constexpr int kQueries = D == 64 ? 128 : 64;
  static constexpr int kPanels = D / 64, kKeyPanel = kKeys * 128, kQueryPanel = kQueries * 128;
  static constexpr int kKeyTile = kPanels * kKeyPanel, kQueryTile = kPanels * kQueryPanel;
  static constexpr int kRowNumbers = kQueries * 4;  // of lse, of δ
  static constexpr int kStages = 2, kKeyStages = D == 64 ? 2 : 1;

  /// The first tile of queries that sees a block of keys.
  __device__ static int first_tile(const Problem& p, int block) {
    return p.causal ? max(0, block * kKeys - (p.tk - p.tq)) / kQueries : 0;
  }
  /// The last block of keys that a tile of queries sees; −1: none.
  __device__ static int last_block(const Problem& p, int tile) {
    if (!p.causal) return p.key_blocks - 1;
    int last_key = (tile + 1) * kQueries - 1 + p.tk - p.tq;
    return last_key < 0 ? -1 : min(p.key_blocks - 1, last_key / kKeys);
  }
};

/// Block `block` of the keys of head (batch, group).
struct Work {
  int batch, group, block;
  __device__ Work(const Problem& p, int index) {
    const int size = p.chunk * p.key_blocks, first = index / size * p.chunk, rest = index % size;
    const int heads = min(p.chunk, p.pairs - first), pair = first + rest % heads;
    block = rest / heads, batch = pair / p.groups, group = pair % p.groups;
  }
};

/// Calls f(tile, member, number of the tile among those of all heads) for the tiles that a piece of work
/// visits, in order.
template <int D, class F>
__device__ __forceinline__ void each_tile(const Problem& p, const Work& work, F f) {
  const int first = Tiles<D>::first_tile(p, work.block);
  const int head = (work.batch * p.groups + work.group) * p.members;
#pragma unroll 1
  for (int tile = p.query_tiles - 1; tile >= first; --tile)
#pragma unroll 1
    for (int m = 0; m < p.members; ++m) f(tile, m, (head + m) * p.query_tiles + tile);
}

/// A place in a ring and the phase of its barriers.
template <int N>
struct Ring {
  int at = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++at == N) at = 0, phase ^= 1;
  }
};

/// Shared memory, as addresses: a ring of K, V; one of Q, dO, lse, δ; dS in two panels of 64 keys; a ring
/// of slabs for each warpgroup (`half`); barriers.
template <int D>
struct Memory {
  using S = Tiles<D>;
  uint32_t base;

  static constexpr int kQ = S::kKeyStages * 2 * S::kKeyTile;
  static constexpr int kDs = kQ + S::kStages * 2 * S::kQueryTile;
  static constexpr int kSlabs = kDs + 2 * S::kQueryPanel;
  static constexpr int kNumbers = kSlabs + 2 * kSlabStages * kSlab;
  static constexpr int kBarriers = kNumbers + S::kStages * 2 * S::kRowNumbers;
  static constexpr int kBytes = kBarriers + 25 * 8;
  static_assert(kBytes <= 227 * 1024);

  __device__ uint32_t k(int slot) const { return base + slot * 2 * S::kKeyTile; }
  __device__ uint32_t v(int slot) const { return k(slot) + S::kKeyTile; }
  __device__ uint32_t q(int stage) const { return base + kQ + stage * 2 * S::kQueryTile; }
  __device__ uint32_t d_o(int stage) const { return q(stage) + S::kQueryTile; }
  __device__ uint32_t ds(int half) const { return base + kDs + half * S::kQueryPanel; }
  __device__ uint32_t slab(int half, int stage) const {
    return base + kSlabs + (half * kSlabStages + stage) * kSlab;
  }
  __device__ uint32_t lse(int stage) const { return base + kNumbers + stage * 2 * S::kRowNumbers; }
  __device__ uint32_t delta(int stage) const { return lse(stage) + S::kRowNumbers; }

  __device__ uint32_t keys_full(int slot) const { return barrier(slot); }
  __device__ uint32_t keys_done(int slot) const {
    return barrier(2 + slot);
  }  // dK, dV in their place
  __device__ uint32_t keys_empty(int slot) const { return barrier(4 + slot); }
  __device__ uint32_t rows_full(int stage) const { return barrier(6 + stage); }
  __device__ uint32_t rows_empty(int stage) const { return barrier(8 + stage); }
  __device__ uint32_t slab_full(int half, int stage) const {
    return barrier(10 + 2 * half + stage);
  }
  __device__ uint32_t slab_empty(int half, int stage) const {
    return barrier(14 + 2 * half + stage);
  }
  __device__ uint32_t slabs_added() const { return barrier(18); }
  __device__ uint32_t slabs_published() const { return barrier(19); }
  __device__ uint32_t slab_back(int half) const { return barrier(20 + half); }  // the sum is there
  __device__ uint32_t ds_empty() const { return barrier(22); }
  __device__ uint32_t work(int slot) const {
    return barrier(23 + slot);
  }  // its number, not a barrier

  __device__ void start() const;

 private:
  __device__ uint32_t barrier(int i) const { return base + kBarriers + 8 * i; }
};

#if defined(GRADUS_SM90A)

/// One thread: makes the barriers. Warps that compute arrive each for itself.
template <int D>
__device__ void Memory<D>::start() const {
  constexpr int kWarp = hopper::kWarpArrivals;
  for (int i = 0; i < 2; ++i) {
    hopper::init(keys_full(i), 1), hopper::init(rows_full(i), 1);
    hopper::init(keys_done(i), 8 * kWarp), hopper::init(rows_empty(i), 8 * kWarp);
    hopper::init(keys_empty(i), 1 + 2 * kWarp);  // one thread of warp 2; warps 1, 3
    hopper::init(slab_back(i), 1);
    for (int half = 0; half < 2; ++half)
      hopper::init(slab_full(half, i), 4 * kWarp), hopper::init(slab_empty(half, i), kWarp);
  }
  hopper::init(ds_empty(), 8 * kWarp);
  hopper::init(slabs_added(), 2), hopper::init(slabs_published(), 1);
  hopper::fence_init();
}

// ---- shared memory by address

__device__ inline float2 load2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
  return v;
}
__device__ inline float4 load4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ inline int load_int(uint32_t address) {
  int v;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ inline void store2(uint32_t address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}
__device__ inline void store4(uint32_t address, const uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3])
               : "memory");
}
__device__ inline void store_int(uint32_t address, int v) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

/// The number of the next piece of work in `slot`, once it is there; Problem::works() or more: none.
template <int D>
__device__ int wait_work(Memory<D> at, Ring<Tiles<D>::kKeyStages> keys) {
  hopper::wait(at.keys_full(keys.at), keys.phase);
  return load_int(at.work(keys.at));
}

#endif  // GRADUS_SM90A

}  // namespace gradus::flash_gradients
#endif
