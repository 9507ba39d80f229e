#pragma once
// A matrix product C = A B on a Hopper GPU, in tiles of 192 × 128 (or so), whose results are worked on
// while the next products run. What ops/gelu_gemm_hopper.cu computes with.
//
// Work on results. A tile of K = 768 takes 9000 clocks of the tensor cores; a gelu of its elements takes
// about half of that on the other units. Neither waits for the other: two warpgroups own tiles in turn.
//
//   products       tile 0   │ tile 1   │ tile 2   │ tile 3   │ …
//   warpgroup 0    products │ gelu     │ products │ gelu     │
//   warpgroup 1             │ products │ gelu     │ products │
//
// A third warpgroup has the copy engine bring slices of A and B, 64 deep, through a ring of stages, in
// the order of the tiles. Nobody may wait for a stage while the other warpgroup still waits for that
// stage: the barrier's phase is one bit. So each hands its turn on with its last slice.
//
// Bytes. A multiprocessor reads (rows + columns) · 128 bytes a slice from the L2 cache, which has about
// 40 bytes a clock for each. So two blocks share the rows of A: they form a cluster, work on two
// neighbouring tiles in a row of tiles, and load one half of A each, for both.
#include "ops/hopper_cluster.h"
#include "ops/hopper_products.h"

#if defined(__CUDACC__)

namespace gradus::gelu_tiles {

constexpr int kCluster = 2, kDepth = hopper::kPanel;
constexpr int kUnitRows = 16, kUnit = kUnitRows * 128;  // bytes: 16 rows × 64 columns of a warp

/// What a block is made of, and where its shared memory goes (bytes).
template <int kRows_, int kColumns_>
struct Layout {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kStages = kRows + kColumns > 256 ? 4 : 5;
  static constexpr int kBlocks = kRows / 64;        // of 64 rows: one wgmma each
  static constexpr int kPanels = kColumns / 64;     // of 64 columns
  static constexpr int kUnits = kBlocks * kPanels;  // of a warp, in a tile
  static constexpr int kSlots = 4;                  // for units of a warp on their way
  static constexpr int kTileA = kRows * 128, kTileB = kColumns * 128, kStage = kTileA + kTileB;
  static constexpr int kBarriers = kStages * kStage + 8 * kSlots * kUnit;
  static constexpr int kBytes = kBarriers + 8 * (2 * kStages + 8 * kSlots);
  static constexpr int kThreads = 3 * 128;

  uint32_t base;
  __device__ uint32_t a(int stage) const { return base + stage * kStage; }
  __device__ uint32_t b(int stage) const { return a(stage) + kTileA; }
  /// Of warp 0 … 7 of those that compute.
  __device__ uint32_t slot(int warp, int i) const {
    return a(kStages) + (warp * kSlots + i) * kUnit;
  }
  __device__ uint32_t full(int stage) const { return base + kBarriers + stage * 8; }
  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }
  __device__ uint32_t arrived(int warp, int i) const {
    return full(2 * kStages + warp * kSlots + i);
  }
};

struct Problem {
  int rows, columns, depth;
  int pairs;  // of tiles side by side
  int total;  // of pairs
};

#if defined(GRADUS_SM90A)

/// Tile number i of this block. The blocks go through the rows of tiles together, so that what they
/// read of A comes from memory once.
template <class L>
struct Place {
  int row, column;
  bool valid;
  __device__ Place(const Problem& p, int i) {
    const int t = int(blockIdx.x) / kCluster + i * (int(gridDim.x) / kCluster);
    valid = t < p.total;
    row = t / p.pairs * L::kRows;
    column = (t % p.pairs * kCluster + int(hopper::cluster_rank())) * L::kColumns;
  }
};

/// A stage of the ring, and whether the ring came round an odd number of times.
template <class L>
struct Turn {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance(int steps) {
    const int next = stage + steps;
    stage = next % L::kStages, phase ^= uint32_t(next / L::kStages) & 1;
  }
};

template <class L>
__device__ void init_barriers(const L& at) {
  for (int i = 0; i < L::kStages; ++i) {
    hopper::init(at.full(i), 1);
    hopper::init(at.empty(i), 4 * kCluster);  // each warp of the one warpgroup that reads it, twice
  }
  for (int w = 0; w < 8; ++w)
    for (int i = 0; i < L::kSlots; ++i) hopper::init(at.arrived(w, i), 1);
  hopper::fence_init();
}

/// One thread: slices of A and B for all tiles of the block. B (depth, columns) is read as it stands, or
/// (columns, depth) if kB is kAlong.
template <hopper::Side kB, class L>
__device__ void send_slices(const L& at, const Problem& p, const CUtensorMap& a,
                            const CUtensorMap& b) {
  const int half = int(hopper::cluster_rank()) * (L::kRows / kCluster);
  Turn<L> turn;
  for (int i = 0;; ++i) {
    const Place<L> tile(p, i);
    if (!tile.valid) return;
    for (int k = 0; k < p.depth; k += kDepth, turn.advance(1)) {
      const uint32_t full = at.full(turn.stage), to_b = at.b(turn.stage);
      hopper::wait(at.empty(turn.stage), turn.phase ^ 1);
      hopper::expect(full, L::kStage);
      hopper::load_for(3, at.a(turn.stage) + half * 128, a, full, {k, tile.row + half, 0, 0, 0});
      if constexpr (kB == hopper::kAlong)
        hopper::load(to_b, b, full, {k, tile.column, 0, 0, 0});
      else
        for (int panel = 0; panel < L::kPanels; ++panel)
          hopper::load(to_b + panel * kDepth * 128, b, full,
                       {tile.column + panel * 64, k, 0, 0, 0});
    }
  }
}

/// Turns of the two warpgroups. Warpgroup 0 begins.
__device__ inline void wait_for_turn(int group) { hopper::meet(3 + group, 2 * 128); }
__device__ inline void hand_turn_to(int group) { hopper::signal(3 + group, 2 * 128); }

/// c ← the product of a tile, by a warpgroup: row block b of 64 in c[b].
template <class T, hopper::Side kB, class L>
__device__ void multiply_tile(const L& at, const Problem& p, Turn<L>& turn,
                              float (&c)[L::kBlocks][L::kColumns / 2]) {
  constexpr int kSlice =
      kB == hopper::kAlong ? 32 : 2048;  // bytes from one 16-deep slice to the next
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
  int before = -1;  // the stage whose products may still run
  wait_for_turn(group);
  for (int k = 0; k < p.depth; k += kDepth, turn.advance(1)) {
    hopper::wait(at.full(turn.stage), turn.phase);
    const uint64_t a = hopper::along(at.a(turn.stage));
    const uint64_t b = kB == hopper::kAlong ? hopper::along(at.b(turn.stage))
                                            : hopper::across(at.b(turn.stage), kDepth * 128);
    hopper::fence();
#pragma unroll
    for (int slice = 0; slice < kDepth / 16; ++slice)
#pragma unroll
      for (int block = 0; block < L::kBlocks; ++block)
        hopper::multiply<T, hopper::kAlong, kB>(c[block], a + (slice * 32 + block * 64 * 128) / 16,
                                                b + slice * kSlice / 16, k > 0 || slice > 0);
    hopper::commit();
    if (k + kDepth >= p.depth) hand_turn_to(1 - group);
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (before >= 0 && lane < kCluster) hopper::arrive_at(at.empty(before), lane);
    before = turn.stage;
  }
  hopper::wait<0>(c[0]);
#pragma unroll
  for (int block = 1; block < L::kBlocks; ++block) hopper::pin(c[block]);
  if (lane < kCluster) hopper::arrive_at(at.empty(before), lane);
}

#endif  // GRADUS_SM90A

}  // namespace gradus::gelu_tiles
#endif
