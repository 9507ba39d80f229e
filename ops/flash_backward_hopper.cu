// The backward of flash attention on Hopper (flash_attention.cu has the derivation, hopper.h the
// instructions). With S = Q Kᵀ, P = exp(scale S − lse), δ = rowsum(dO ⊙ O):
//
//   dV = Pᵀ dO      dP = dO Vᵀ      dS = P ⊙ (dP − δ)      dQ = scale dS K      dK = scale dSᵀ Q
//
// Five products, each computed once. A piece of work is one block of 128 keys of one head; it walks over
// the tiles of queries that see it, from the last to the first, and over the query heads that share the
// keys. dK and dV stay in registers meanwhile. Scores are computed transposed, Sᵀ = K Qᵀ, keys as rows:
// then Pᵀ and dSᵀ come out in registers as the A operand that dV and dK want. Only dQ needs dS the other
// way round, so dS goes through shared memory, where each of the two warpgroups (64 keys each) writes its
// half and reads both.
//
//   warpgroup 0   warp 0  loads K, V, then Q, dO, lse, δ of tile after tile  (TMA)
//                 warp 2  stores dK, dV                                      (TMA)
//                 warps 1, 3  add dQ of warpgroups 1, 2
//   warpgroups 1, 2       the products; of each tile
//
//     tensor cores   S ─┬─ dP ───┬─ dV ────────┬─ dK ─┬─ dQ ─ S of the next tile ─
//     other units       └ P = 2^…└ dS = P(dP−δ)┘      └ dS to shared memory, meet  └ dQ to shared memory
//
// dQ is a sum over blocks of keys, which different multiprocessors own. Floating sums depend on their
// order, so the order is fixed: a *slab* (64 queries × 64 columns of dQ, floats in the L2 cache) has a
// turn, and block j adds when turn = j. Block 0 stores, the others add (the copy engine adds in the
// cache), the last one, instead of adding, reads the sum, adds its own part in registers and writes dq.
// Work is handed out by a counter, lower blocks of a head first, so whoever waits, waits for one that has
// begun: nothing can lock up. The work of several heads is interleaved (`chunk`): when block j of a head
// starts, block j − 1 has had some time, so waiting is rare; and the long blocks come first. What a chunk
// touches stays in the cache.
#include "ops/flash_backward_hopper.h"

#include "core/cuda.h"
#include "ops/hopper.h"
#include "ops/mma.h"

namespace gradus {

#if defined(__CUDACC__)
namespace {

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kKeys = 128;                            // of a block
constexpr int kSlabRows = 64, kSlab = 64 * 64 * 4;    // bytes of a slab
constexpr int kSlabStages = 2;
constexpr int kThreads = 384;

/// (B, groups, members, T, d): strides in elements.
template <class T>
struct Heads {
  T* data;
  int64_t batch, group, member, row;
  __device__ T* at(int b, int g, int m, int64_t t) const {
    return data + b * batch + g * group + m * member + t * row;
  }
};

struct Problem {
  float* sums;              // (B, H, query tiles, 2) slabs
  float *lse, *delta;       // (B, H, query tiles · kQueries): lse · log₂e, ∞ where P is to be 0; δ
  int *turns, *next_work;   // one for each tile; the counter
  int groups, members, tq, tk, query_tiles, key_blocks, pairs, chunk;
  float scale;
  bool causal;

  __device__ int works() const { return pairs * key_blocks; }
  __device__ int head(int g, int m) const { return g * members + m; }
};

struct Maps {
  CUtensorMap q, d_o, k, v, dq, dk, dv;
};

/// Sizes in bytes where nothing else is said.
template <int D>
struct Tiles {
  static constexpr int kQueries = D == 64 ? 128 : 64;  // of a tile
  static constexpr int kPanels = D / 64, kKeyPanel = kKeys * 128, kQueryPanel = kQueries * 128;
  static constexpr int kKeyTile = kKeys * D * 2, kQueryTile = kQueries * D * 2;
  static constexpr int kStages = 2, kKeyStages = D == 64 ? 2 : 1;

  /// The first tile of queries that sees a block of keys, and the last block that a tile sees (−1: none).
  __device__ static int first_tile(const Problem& p, int block) {
    return p.causal ? max(0, block * kKeys - (p.tk - p.tq)) / kQueries : 0;
  }
  __device__ static int last_block(const Problem& p, int tile) {
    if (!p.causal) return p.key_blocks - 1;
    int last_key = (tile + 1) * kQueries - 1 + p.tk - p.tq;
    return last_key < 0 ? -1 : min(p.key_blocks - 1, last_key / kKeys);
  }
};

/// Shared memory: rings of K, V and of Q, dO, lse, δ; dS; two slabs; barriers.
template <int D>
struct Memory : Tiles<D> {
  using S = Tiles<D>;
  uint32_t base;

  static constexpr int kQ = S::kKeyStages * 2 * S::kKeyTile, kDs = kQ + S::kStages * 2 * S::kQueryTile;
  static constexpr int kSlabs = kDs + 2 * S::kQueryPanel, kRows = kSlabs + 2 * kSlabStages * kSlab;
  static constexpr int kBarriers = kRows + S::kStages * 2 * S::kQueries * 4;
  static constexpr int kBytes = kBarriers + 256;

  __device__ uint32_t k(int slot) const { return base + slot * 2 * S::kKeyTile; }
  __device__ uint32_t v(int slot) const { return k(slot) + S::kKeyTile; }
  __device__ uint32_t q(int stage) const { return base + kQ + stage * 2 * S::kQueryTile; }
  __device__ uint32_t d_o(int stage) const { return q(stage) + S::kQueryTile; }
  __device__ uint32_t ds(int half) const { return base + kDs + half * S::kQueryPanel; }
  __device__ uint32_t slab(int half, int stage) const {
    return base + kSlabs + (half * kSlabStages + stage) * kSlab;
  }
  __device__ uint32_t lse(int stage) const { return base + kRows + stage * 2 * S::kQueries * 4; }
  __device__ uint32_t delta(int stage) const { return lse(stage) + S::kQueries * 4; }

  __device__ uint32_t barrier(int i) const { return base + kBarriers + 8 * i; }
  __device__ uint32_t keys_full(int slot) const { return barrier(slot); }
  __device__ uint32_t keys_done(int slot) const { return barrier(2 + slot); }  // dK, dV lie in their place
  __device__ uint32_t keys_empty(int slot) const { return barrier(4 + slot); }
  __device__ uint32_t rows_full(int stage) const { return barrier(6 + stage); }
  __device__ uint32_t rows_empty(int stage) const { return barrier(8 + stage); }
  __device__ uint32_t slab_full(int half, int stage) const { return barrier(10 + 2 * half + stage); }
  __device__ uint32_t slab_empty(int half, int stage) const { return barrier(14 + 2 * half + stage); }
  __device__ uint32_t slabs_added() const { return barrier(18); }
  __device__ uint32_t slabs_published() const { return barrier(19); }
  __device__ uint32_t slab_back(int half) const { return barrier(20 + half); }
  __device__ uint32_t ds_empty() const { return barrier(22); }
  __device__ uint32_t work(int slot) const { return barrier(23 + slot); }  // its number

  __device__ void start() const;
};

#if defined(GRADUS_SM90A)

template <int D>
__device__ void Memory<D>::start() const {
  for (int i = 0; i < 2; ++i) {
    hopper::init(keys_full(i), 1), hopper::init(rows_full(i), 1);
    hopper::init(keys_done(i), 8), hopper::init(rows_empty(i), 8);  // one for each warp
    hopper::init(keys_empty(i), 3);                                 // warps 1, 2, 3
    hopper::init(slab_back(i), 1);
    for (int half = 0; half < 2; ++half)
      hopper::init(slab_full(half, i), 4), hopper::init(slab_empty(half, i), 1);
  }
  hopper::init(ds_empty(), 8);
  hopper::init(slabs_added(), 2), hopper::init(slabs_published(), 1);
  hopper::fence_init();
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
__device__ inline void store2(uint32_t address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}
__device__ inline void store4(uint32_t address, const uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v[0]), "r"(v[1]), "r"(v[2]),
               "r"(v[3])
               : "memory");
}
__device__ inline int load_int(uint32_t address) {
  int v;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ inline void store_int(uint32_t address, int v) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Waits for a turn, and for what was written before it was given.
__device__ inline void wait_turn(const int* turn, int mine) {
  int v;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(turn) : "memory");
  } while (v != mine);
  hopper::fence_async_global();
}
__device__ inline void give_turn(int* turn, int v) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(v) : "memory");
}

/// Block `block` of the keys of head (batch, group).
struct Work {
  int batch, group, block;
  __device__ Work(const Problem& p, int index) {
    int size = p.chunk * p.key_blocks, first = index / size * p.chunk, rest = index % size;
    int heads = min(p.chunk, p.pairs - first), pair = first + rest % heads;
    block = rest / heads, batch = pair / p.groups, group = pair % p.groups;
  }
};

/// Calls f(tile, member, number of the tile among all heads') for the tiles that a piece of work visits.
template <int D, class F>
__device__ __forceinline__ void each_tile(const Problem& p, const Work& work, F f) {
  const int first = Tiles<D>::first_tile(p, work.block);
  const int head = (work.batch * p.groups + work.group) * p.members;
#pragma unroll 1
  for (int tile = p.query_tiles - 1; tile >= first; --tile)
#pragma unroll 1
    for (int m = 0; m < p.members; ++m) f(tile, m, (head + m) * p.query_tiles + tile);
}

// ---- warp 0: loads

template <int D>
__device__ void load_inputs(const Problem& p, const Maps& maps, Memory<D> at) {
  using S = Tiles<D>;
  Ring<S::kKeyStages> keys;
  Ring<S::kStages> rows;
  int next = atomicAdd(p.next_work, 1);
  for (;; keys.advance()) {
    int index = next;
    hopper::wait(at.keys_empty(keys.at), keys.phase ^ 1);
    store_int(at.work(keys.at), index);
    if (index >= p.works()) break;
    Work work(p, index);
    hopper::expect(at.keys_full(keys.at), 2 * S::kKeyTile);
    for (int c = 0; c < S::kPanels; ++c) {
      hopper::Corner corner{64 * c, work.block * kKeys, 0, work.group, work.batch};
      hopper::load(at.k(keys.at) + c * S::kKeyPanel, maps.k, at.keys_full(keys.at), corner);
      hopper::load(at.v(keys.at) + c * S::kKeyPanel, maps.v, at.keys_full(keys.at), corner);
    }
    next = atomicAdd(p.next_work, 1);
    each_tile<D>(p, work, [&](int tile, int m, int number) {
      const uint32_t full = at.rows_full(rows.at);
      hopper::wait(at.rows_empty(rows.at), rows.phase ^ 1);
      hopper::expect(full, 2 * S::kQueryTile + 2 * S::kQueries * 4);
      for (int c = 0; c < S::kPanels; ++c) {
        hopper::Corner corner{64 * c, tile * S::kQueries, m, work.group, work.batch};
        hopper::load(at.q(rows.at) + c * S::kQueryPanel, maps.q, full, corner);
        hopper::load(at.d_o(rows.at) + c * S::kQueryPanel, maps.d_o, full, corner);
      }
      const int64_t row = int64_t(number) * S::kQueries;
      hopper::load_bytes(at.lse(rows.at), p.lse + row, S::kQueries * 4, full);
      hopper::load_bytes(at.delta(rows.at), p.delta + row, S::kQueries * 4, full);
      rows.advance();
    });
  }
  hopper::arrive(at.keys_full(keys.at));
}

// ---- warp 2, one thread: gives turns on, and stores dK and dV, which lie where K and V lay. To publish
// what was added takes longer than to add it; so it is not the adding warps that wait for it.

template <int D>
__device__ void publish(const Problem& p, const Maps& maps, Memory<D> at) {
  using S = Tiles<D>;
  uint32_t phase = 0;
  for (Ring<S::kKeyStages> keys;; keys.advance()) {
    hopper::wait(at.keys_full(keys.at), keys.phase);
    int index = load_int(at.work(keys.at));
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

// ---- warps 1 and 3: add dQ, a slab for each tile. Slab `half` of a tile is its rows 64 half … (d = 64),
// or its columns 64 half … (d = 128). Row r holds its 32-byte chunk c at place c ^ (r % 8).

/// One thread: adds the slab to `sum`, or stores it there if it is the first.
__device__ inline void add_slab(float* sum, uint32_t slab, bool first) {
  first ? hopper::store_bytes(sum, slab, kSlab) : hopper::add_floats(sum, slab, kSlab);
  hopper::commit_stores();
}

/// A warp: the slab times `scale` in 16 bits, as a panel of 64 rows, into the first half of its place.
/// Eight rows are read before the place of their results, further up, is written.
template <class T>
__device__ void round_slab(uint32_t slab, float scale) {
  int lane = threadIdx.x % 32, chunk = lane % 8;
#pragma unroll 1
  for (int first = lane / 8; first < kSlabRows; first += 8) {
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

template <class T, int D>
__device__ void add_queries(const Problem& p, const Maps& maps, Memory<D> at, int half) {
  using S = Tiles<D>;
  const bool elected = threadIdx.x % 32 == 0;
  uint32_t added_phase = 0, back_phase = 0;
  Ring<kSlabStages> slabs;
  for (Ring<S::kKeyStages> keys;; keys.advance()) {
    hopper::wait(at.keys_full(keys.at), keys.phase);
    int index = load_int(at.work(keys.at));
    if (index >= p.works()) break;
    __syncwarp();
    if (elected) hopper::arrive(at.keys_empty(keys.at));
    Work work(p, index);
    each_tile<D>(p, work, [&](int tile, int m, int number) {
      const bool begun = work.block > 0, last = work.block == S::last_block(p, tile);
      float* sum = p.sums + (int64_t(number) * 2 + half) * (kSlab / 4);
      const uint32_t slab = at.slab(half, slabs.at), empty = at.slab_empty(half, slabs.at);
      if (begun) wait_turn(p.turns + number, work.block);
      hopper::wait(at.slab_full(half, slabs.at), slabs.phase);
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
        if (elected) {
          add_slab(sum, slab, false);
          hopper::wait_writes();
          hopper::expect(at.slab_back(half), kSlab);
          hopper::load_bytes(slab, sum, kSlab, at.slab_back(half));
        }
        hopper::wait(at.slab_back(half), back_phase);
        back_phase ^= 1;
      }
      if (last) {
        round_slab<T>(slab, p.scale);
        if (elected) {
          int row = D == 64 ? kSlabRows * half : 0, column = D == 64 ? 0 : 64 * half;
          hopper::store(maps.dq, slab, {column, tile * S::kQueries + row, m, work.group, work.batch});
          hopper::commit_stores();
          hopper::wait_stores();
          hopper::arrive(empty);
        }
      }
      __syncwarp();
      slabs.advance();
    });
  }
}

// ---- warpgroups 1 and 2: the products, each for 64 keys

/// c (64 × N) ← a bᵀ, sums over D; `a` and `b` are tiles with panels a_panel and b_panel bytes apart.
template <class T, int D, int R>
__device__ __forceinline__ void multiply_rows(float (&c)[R], uint32_t a, int a_panel, uint32_t b, int b_panel) {
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
__device__ __forceinline__ void add_product(float (&c)[R], const uint32_t (&a)[kSteps][4], uint32_t b,
                                            int b_panel, bool add) {
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

/// P = 2^(scale S − lse), for half `half` of the columns (queries).
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
  int t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < R / 4; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (8 * n + 2 * t + e % 2 < (e < 2 ? low : high)) s[4 * n + e] = 0;
}

/// dS = P ⊙ (dP − δ) into s, for columns kFirst … of 8.
template <int kFirst, int kEnd, int R>
__device__ __forceinline__ void score_gradients(float (&s)[R], const float (&dp)[R], uint32_t delta) {
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
__device__ __forceinline__ void store_rows(uint32_t tile, int panel, const float (&c)[R], float factor) {
  int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = 16 * warp + lane % 16;
#pragma unroll
  for (int k = 0; k < R / 8; ++k) {
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = mma::pack<T>(c[8 * k + 2 * i] * factor, c[8 * k + 2 * i + 1] * factor);
    int chunk = k % 4 * 2 + lane / 16;
    hopper::store_tiles(tile + k / 4 * panel + row * 128 + ((chunk ^ (row & 7)) << 4), a[0], a[1], a[2],
                        a[3]);
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
  if (threadIdx.x % 32 == 0) hopper::arrive(barrier);
}

template <class T, int D>
__device__ __forceinline__ void compute(const Problem& p, Memory<D> at, int half) {
  using S = Tiles<D>;
  constexpr int kSteps = S::kQueries / 16, kHalf = kSteps / 2;
  const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4;
  const float scale = p.scale * kLog2e;
  const int mine = half * 64 * 128;  // bytes to my rows of K and V
  Ring<S::kStages> rows;
  Ring<kSlabStages> slabs;
  uint32_t phase = 0;  // of dS
  for (Ring<S::kKeyStages> keys;; keys.advance()) {
    hopper::wait(at.keys_full(keys.at), keys.phase);
    int index = load_int(at.work(keys.at));
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
      // key ≤ query + Tk − Tq, as a bound on the column of the query
      int bound = p.tq - p.tk - tile * S::kQueries;
      if (partial || (p.causal && key - g - 16 * warp + 63 + bound > 0)) {
        int low = p.causal ? key + bound : 0, high = p.causal ? key + 8 + bound : 0;
        hide(s, key < p.tk ? low : S::kQueries, key + 8 < p.tk ? high : S::kQueries);
      }

      uint32_t p0[kHalf][4], p1[kHalf][4], ds[kSteps][4];
#pragma unroll
      for (int i = 0; i < kHalf; ++i) pack_step<T>(p0[i], s, i);
      add_product<T>(dv, p0, d_o, S::kQueryPanel, n > 0);
      hopper::wait<1>(dp);
      score_gradients<0, kSteps>(s, dp, at.delta(rows.at));
#pragma unroll
      for (int i = 0; i < kHalf; ++i) pack_step<T>(ds[i], s, i);
#pragma unroll
      for (int i = 0; i < kHalf; ++i) pack_step<T>(p1[i], s, kHalf + i);
      add_product<T>(dv, p1, d_o + kHalf * 2048, S::kQueryPanel, true);
      score_gradients<kSteps, 2 * kSteps>(s, dp, at.delta(rows.at));
#pragma unroll
      for (int i = kHalf; i < kSteps; ++i) pack_step<T>(ds[i], s, i);
      add_product<T>(dk, ds, q, S::kQueryPanel, n > 0);
      hopper::wait<1>(dv);  // frees the registers of P

      hopper::wait(at.ds_empty(), phase ^ 1);
      store_transposed(at.ds(half), ds);
      hopper::fence_async();
      hopper::meet(1, 256);
      float dq[32];
      const uint64_t left = hopper::along(at.ds(0) + (D == 64 ? mine : 0));
      const uint64_t right = hopper::across(k + (D == 64 ? 0 : half * S::kKeyPanel), S::kKeyPanel);
      hopper::fence();
#pragma unroll
      for (int i = 0; i < kKeys / 16; ++i)
        hopper::multiply<T, hopper::kAlong, hopper::kAcross>(
            dq, hopper::further(left, i / 4 * S::kQueryPanel + i % 4 * 32),
            hopper::further(right, i * 2048), i > 0);
      hopper::commit();
      hopper::wait<1>(dk);

      Ring<S::kStages> next = rows;
      next.advance();
      // After the last tile S is computed once more, in vain: a branch here would make the compiler wait.
      bool more = n + 1 < tiles;
      if (more) hopper::wait(at.rows_full(next.at), next.phase);
      multiply_rows<T, D>(s, k + mine, S::kKeyPanel, more ? at.q(next.at) : q, S::kQueryPanel);
      hopper::wait<1>(dq);
      arrive_warp(at.ds_empty());
      if (threadIdx.x % 32 == 0) hopper::arrive(at.rows_empty(rows.at));
      hopper::wait(at.slab_empty(half, slabs.at), slabs.phase ^ 1);
      store_slab(at.slab(half, slabs.at), dq);
      hopper::fence_async();
      arrive_warp(at.slab_full(half, slabs.at));
      slabs.advance();
      rows = next;
      phase ^= 1;
      if (++member == p.members) member = 0, --tile;
      hopper::wait<0>(s);
    } while (++n < tiles);
    hopper::pin(dk);
    hopper::pin(dv);
    hopper::meet(1, 256);  // both have read K
    store_rows<T>(k + mine, S::kKeyPanel, dk, p.scale);
    store_rows<T>(v + mine, S::kKeyPanel, dv, 1);
    hopper::fence_async();
    arrive_warp(at.keys_done(keys.at));
  }
}

#endif  // GRADUS_SM90A

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 1)
flash_backward_kernel(const __grid_constant__ Maps maps, const Problem p) {
#if defined(GRADUS_SM90A)
  extern __shared__ __align__(1024) unsigned char memory[];
  Memory<D> at;
  at.base = uint32_t(__cvta_generic_to_shared(memory));
  int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the compiler sees: one number a warp
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

/// δ and lse · log₂e, padded to whole tiles; no slab has had a turn; dq = 0 where no key is visible. A
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
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int local = threadIdx.x / kLanes + i * (256 / kLanes), row = tile * kQueries + local;
    float sum = 0;
    if (row < p.tq) {
      uint4 x = *reinterpret_cast<const uint4*>(o.at(b, g, m, row) + column);
      uint4 y = *reinterpret_cast<const uint4*>(d_o.at(b, g, m, row) + column);
      const T *xs = reinterpret_cast<const T*>(&x), *ys = reinterpret_cast<const T*>(&y);
#pragma unroll
      for (int c = 0; c < 8; ++c) sum += float(xs[c]) * float(ys[c]);
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
#endif
}

// ---- launch

template <class T>
Heads<T> heads(const Tensor& x) {
  const Strides& s = x.strides();
  return {static_cast<T*>(x.raw()), s[0], s[1], s[2], s[3]};
}

int divide_up(int64_t a, int64_t b) { return int((a + b - 1) / b); }

template <class T, int D>
void launch(const FlashInputs& in, const Tensor& o, const Tensor& lse, const Tensor& d_o,
            const FlashGradients& to) {
  using S = Tiles<D>;
  Device device = in.q.device();
  cudaStream_t stream = cuda::stream(device);
  int batch = int(in.q.size(0)), processors = cuda::multiprocessors(device);
  Problem p{};
  p.groups = int(in.q.size(1)), p.members = int(in.q.size(2));
  p.tq = int(in.q.size(3)), p.tk = int(in.k.size(2));
  p.query_tiles = divide_up(p.tq, S::kQueries), p.key_blocks = divide_up(p.tk, kKeys);
  p.pairs = batch * p.groups;
  p.chunk = std::max(processors / 2, 4 * processors / p.key_blocks);
  p.scale = float(in.scale), p.causal = in.causal;

  int64_t tiles = int64_t(p.pairs) * p.members * p.query_tiles;
  Tensor sums = empty({p.key_blocks > 1 ? tiles * 2 * kSlab / 4 : 1}, DType::f32, device);
  Tensor numbers = empty({2, tiles * S::kQueries}, DType::f32, device);
  Tensor turns = empty({tiles + 1}, DType::i32, device);
  p.sums = sums.data<float>(), p.lse = numbers.data<float>(), p.delta = p.lse + tiles * S::kQueries;
  p.turns = turns.data<int32_t>(), p.next_work = p.turns + tiles;

  flash_prepare_kernel<T, D>
      <<<dim3(unsigned(p.query_tiles), unsigned(p.groups * p.members), unsigned(batch)), 256, 0, stream>>>(
          p, heads<const T>(o), heads<const T>(d_o), heads<T>(to.dq), lse.data<float>());
  cuda::check_launch("flash attention: row sums");

  Maps maps{hopper::tensor_map(in.q, S::kQueries), hopper::tensor_map(d_o, S::kQueries),
            hopper::tensor_map(in.k, kKeys),       hopper::tensor_map(in.v, kKeys),
            hopper::tensor_map(to.dq, kSlabRows),  hopper::tensor_map(to.dk, kKeys),
            hopper::tensor_map(to.dv, kKeys)};
  auto kernel = flash_backward_kernel<T, D>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Memory<D>::kBytes),
        "flash attention: asking for shared memory");
  int works = p.pairs * p.key_blocks;
  kernel<<<unsigned(std::min(works, processors)), kThreads, Memory<D>::kBytes, stream>>>(maps, p);
  cuda::check_launch("flash attention: backward");
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
  return in.q.device().is_cuda() && hopper::is_hopper(in.q.device()) && moves(in.q) && moves(in.k) &&
         moves(in.v) && moves(d_o);
}

void flash_backward_hopper(const FlashInputs& in, const Tensor& o, const Tensor& lse,
                           const Tensor& d_o, const FlashGradients& to) {
  bool small = in.q.size(-1) == 64;
  if (in.q.dtype() == DType::bf16)
    small ? launch<bf16, 64>(in, o, lse, d_o, to) : launch<bf16, 128>(in, o, lse, d_o, to);
  else
    small ? launch<f16, 64>(in, o, lse, d_o, to) : launch<f16, 128>(in, o, lse, d_o, to);
}

#else

bool flash_backward_hopper_fits(const FlashInputs&, const Tensor&) { return false; }
void flash_backward_hopper(const FlashInputs& in, const Tensor&, const Tensor&, const Tensor&,
                           const FlashGradients&) {
  fail("flash attention needs a GPU, got ", in.q.describe());
}

#endif

}  // namespace gradus
