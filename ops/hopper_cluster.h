#pragma once
// What the blocks of a cluster do together: blocks that run at the same time on neighbouring
// multiprocessors, and reach into each other's shared memory. Adds to ops/hopper.h.
//
//            block 0                 block 1          a tile that both need is loaded once, half by
//   loads    ▀ ──────┬───────┐       ▄ ──────┐        each, and arrives in both at the same place;
//                    ▼       └────────────── ▼ ──▶    so does the news, at each block's own barrier
//   shared   █                       █
//
// A block writes into the other's memory, so it must know that the other has read what lay there: the
// readers of both arrive at the `empty` barriers of both.
#include "ops/hopper.h"

#if defined(__CUDACC__)

namespace gradus::hopper {

#if defined(GRADUS_SM90A)

/// The rank of this block in its cluster.
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Waits for all threads of the cluster.
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

/// Arrives at the barrier that lies at `barrier` in the block of rank `rank`. Tells of what copies and
/// products have read, not of what this thread has stored: a release for the whole cluster would be a
/// fence of the whole device.
__device__ inline void arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// One thread: copies the panel at `c` to the shared memory of each block in the bit mask `blocks`, at
/// `to`, and tells the barrier of each.
__device__ inline void load_for(uint16_t blocks, uint32_t to, const CUtensorMap& map,
                                uint32_t barrier, Corner c) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster [%0], [%1, {%3,%4,%5,%6,%7}], [%2], %8;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c.column), "r"(c.row), "r"(c.member), "r"(c.group), "r"(c.batch),
      "h"(blocks)
      : "memory");
}

#endif  // GRADUS_SM90A

}  // namespace gradus::hopper
#endif
