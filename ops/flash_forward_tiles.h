#pragma once
// How the forward of flash attention is cut into tiles on a Hopper GPU, and how they reach the shared
// memory of their block: what flash_forward_hopper.cu computes with.
//
// An item of work is a tile of 128 queries of one head. Its tiles of 128 keys and values come through a
// ring of stages, the last one first: with a causal mask that is the one on the diagonal.
//
//          keys 0      1      2      3
// queries 0   ◣                            item 0: 1 tile of keys        ◣ masked
//         1   ■      ◣                     item 1: 2 tiles               ■ all seen
//         2   ■      ■      ◣              item 2: 3 tiles
//         3   ■      ■      ■      ◣       item 3: 4 tiles
//
// Items of one head differ in work, so that their order matters. Where a block has one item, the longer
// items of a chunk of heads come first, whose keys and values fit the L2 cache. Where blocks are
// persistent, each takes pairs of items, i and n − 1 − i, that are n + 1 tiles together.
#include "ops/hopper_products.h"

#if defined(__CUDACC__)

namespace gradus::flash_tiles {

constexpr int kRows = 64;                  // queries of a warpgroup
constexpr int kGroups = 2;                 // warpgroups that compute
constexpr int kQueries = kGroups * kRows;  // of an item
constexpr int kKeys = 128;                 // of a tile

struct Problem {
  float* lse;  // (B, H, Tq)
  int batches, groups, members, tq, tk;
  int chunk;    // heads
  float scale;  // times log₂ e
  bool causal;

  /// How many keys query i sees.
  __device__ int seen(int i) const { return causal ? max(0, min(tk, i + 1 + tk - tq)) : tk; }
  /// How many keys are seen by any of the `rows` queries from `first` on.
  __device__ int seen(int first, int rows) const {
    return first < tq ? seen(min(first + rows, tq) - 1) : 0;
  }
  __host__ __device__ int heads() const { return batches * groups * members; }
  __host__ __device__ int items() const { return (tq + kQueries - 1) / kQueries; }  // of a head
  __host__ __device__ int pairs() const { return (items() + 1) / 2; }
};

/// What a block is made of, and where its shared memory goes (bytes).
template <int D_, int kStages_, bool kPersistent_>
struct Layout {
  static constexpr int D = D_, kStages = kStages_;
  static constexpr bool kPersistent =
      kPersistent_;  // with a warpgroup more, which brings the tiles
  static constexpr int kThreads = 128 * (kGroups + kPersistent);
  static constexpr int kBlocks = kPersistent ? 1 : 2;  // on a multiprocessor
  static constexpr int kBuffers =
      kPersistent ? 2 : 1;  // for queries: the next come during this item
  static constexpr int kPanels = D / hopper::kPanel;
  static constexpr int kQueryTile = kRows * D * 2;  // of a warpgroup; it leaves its output there
  static constexpr int kKeyTile = kKeys * D * 2;
  static constexpr int kBarriers = kBuffers * kGroups * kQueryTile + 2 * kStages * kKeyTile;
  static constexpr int kBytes = kBarriers + (2 * kBuffers + 4 * kStages) * 8;

  uint32_t base;
  __device__ uint32_t queries(int buffer, int warpgroup) const {
    return base + (buffer * kGroups + warpgroup) * kQueryTile;
  }
  __device__ uint32_t keys(int stage) const { return queries(kBuffers, 0) + stage * kKeyTile; }
  __device__ uint32_t values(int stage) const { return keys(kStages) + stage * kKeyTile; }
  __device__ uint32_t queries_full(int buffer) const { return base + kBarriers + buffer * 8; }
  __device__ uint32_t queries_empty(int buffer) const { return queries_full(kBuffers + buffer); }
  __device__ uint32_t keys_full(int stage) const { return queries_full(2 * kBuffers + stage); }
  __device__ uint32_t keys_empty(int stage) const { return keys_full(kStages + stage); }
  __device__ uint32_t values_full(int stage) const { return keys_full(2 * kStages + stage); }
  __device__ uint32_t values_empty(int stage) const { return keys_full(3 * kStages + stage); }
};

#if defined(GRADUS_SM90A)

template <class L>
__device__ void init_barriers(const L& at) {
  for (int i = 0; i < L::kBuffers; ++i)
    hopper::init(at.queries_full(i), 1), hopper::init(at.queries_empty(i), kGroups);
  for (int i = 0; i < L::kStages; ++i) {
    hopper::init(at.keys_full(i), 1), hopper::init(at.values_full(i), 1);
    hopper::init(at.keys_empty(i), 4 * kGroups);  // one for each warp
    hopper::init(at.values_empty(i), 4 * kGroups);
  }
  hopper::fence_init();
}

/// A stage of a ring of N, and whether the ring came round an odd number of times.
template <int N>
struct Turn {
  int stage = 0;
  uint32_t phase = 0;
  __device__ Turn next() const {
    return stage + 1 == N ? Turn{0, phase ^ 1} : Turn{stage + 1, phase};
  }
};

struct Item {
  int first;  // of its queries
  int member, group, batch;

  __device__ Item(const Problem& p, int tile, int head)
      : first(tile * kQueries),
        member(head % p.members),
        group(head / p.members % p.groups),
        batch(head / p.members / p.groups) {}
  __device__ int tiles(
      const Problem& p) const {  // of keys; at least one, so that a walk has a start
    return max(1, (p.seen(first, kQueries) + kKeys - 1) / kKeys);
  }
};

/// The way of a persistent block: pairs block, block + blocks, …; of a pair first the longer item.
struct Cursor {
  int pair = int(blockIdx.x), second = 0;
  int number = 0;  // of items before

  __device__ bool valid(const Problem& p) const { return pair < p.pairs() * p.heads(); }
  __device__ Item item(const Problem& p) const {
    int i = pair % p.pairs();
    return Item(p, second ? i : p.items() - 1 - i, pair / p.pairs());
  }
  __device__ void advance(const Problem& p) {
    bool alone = pair % p.pairs() * 2 + 1 == p.items();  // the middle one of an odd number
    if (second || alone)
      pair += int(gridDim.x), second = 0;
    else
      second = 1;
    ++number;
  }
};

/// Has the copy engine bring what the warpgroups read; used by one thread.
template <class L>
struct Producer {
  const L& at;
  const CUtensorMap &q, &k, &v;

  __device__ void send_queries(const Item& item, int buffer) const {
    hopper::expect(at.queries_full(buffer), kGroups * L::kQueryTile);
    for (int w = 0; w < kGroups; ++w)
      for (int panel = 0; panel < L::kPanels; ++panel)
        hopper::load(
            at.queries(buffer, w) + panel * kRows * 128, q, at.queries_full(buffer),
            {panel * hopper::kPanel, item.first + w * kRows, item.member, item.group, item.batch});
  }
  /// Keys and values 128 j … 128 j + 127.
  __device__ void send_tile(const Item& item, int j, Turn<L::kStages> to) const {
    hopper::wait(at.keys_empty(to.stage), to.phase ^ 1);
    send(k, item, j, at.keys(to.stage), at.keys_full(to.stage));
    hopper::wait(at.values_empty(to.stage), to.phase ^ 1);
    send(v, item, j, at.values(to.stage), at.values_full(to.stage));
  }
  /// All that a persistent block needs.
  __device__ void send_items(const Problem& p) const {
    Turn<L::kStages> turn;
    for (Cursor cursor; cursor.valid(p); cursor.advance(p)) {
      Item item = cursor.item(p);
      hopper::wait(at.queries_empty(cursor.number % 2), cursor.number / 2 % 2 ^ 1);
      send_queries(item, cursor.number % 2);
      for (int j = item.tiles(p) - 1; j >= 0; --j, turn = turn.next()) send_tile(item, j, turn);
    }
  }

 private:
  __device__ void send(const CUtensorMap& map, const Item& item, int j, uint32_t to,
                       uint32_t full) const {
    hopper::expect(full, L::kKeyTile);
    for (int panel = 0; panel < L::kPanels; ++panel)
      hopper::load(to + panel * kKeys * 128, map, full,
                   {panel * hopper::kPanel, j * kKeys, 0, item.group, item.batch});
  }
};

#endif  // GRADUS_SM90A

}  // namespace gradus::flash_tiles
#endif
