#pragma once
// Sums and gathers between the GPUs of one process, whose ranks are threads: each GPU's copy engines read the
// memory of the others, and multiprocessors are needed for nothing but the additions.
//
//   NCCL copies with kernels. A product fills a GPU's multiprocessors to the last, and a kernel that is put beside
//   it waits for its end. Copy engines do not: what they carry is hidden behind the product.
//
//   all_gather       each rank copies all parts to itself
//   reduce_scatter   each rank copies its part of all to itself, and adds in the order of ranks, in f32 or
//                    wider, rounding once
//   all_reduce       the second of contiguous slices, then the first
//
// The host's threads meet in each call, to tell each other addresses and events, and compare what they
// call; then the devices go on by themselves:
//
//   stream of r   ── ready_r ── wait for all ready ── copy … ── done_r ── add ── wait for all done ──▶
//
// What is small, and all other collectives, goes through NCCL, which needs less time for it.
#include <memory>

#include "parallel/group.h"

namespace gradus::parallel {

/// Whether each GPU of these ranks, which are threads of one process, reaches the memory of all others. Called
/// by all of them.
bool are_peers(const Communicator& ranks, Device device);

/// This rank's end; called by all ranks of `host`, which outlives it, and are peers. `rest` carries what this
/// does not.
std::unique_ptr<Group> make_peer_group(Group& host, Device device, std::unique_ptr<Group> rest);

}  // namespace gradus::parallel
