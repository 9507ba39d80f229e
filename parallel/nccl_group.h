#pragma once
// Tensors on GPUs, one GPU a rank, through NCCL.
//
//   made          at the first such tensor of a group, by all its ranks: they tell each other on the host which
//                 GPU they have, rank 0 draws an id, each makes its end of the communicator
//   a call        is put on this thread's stream; the host goes on at once
//   a watchdog    (parallel/nccl_watchdog.h) sees what goes wrong meanwhile and ends it; the next call, and
//                 the next wait for the device, throw the Error
//   destroyed     with the last handle of the group
//
// NCCL knows no tags: messages between two ranks match in the order of the calls. Ranks that are threads of
// one process compare their calls (parallel/call_ledger.h), so a disagreement, of tags too, is an Error.
#include <memory>

#include "parallel/group.h"

namespace gradus::parallel {

/// Whether this program was built with NCCL.
bool has_nccl();

/// This rank's end; called by all ranks of `host`, which outlives it, each with its own GPU: see
/// parallel/gpu_group.h. `one_process`: the ranks are threads of one. Error without NCCL.
std::unique_ptr<Group> make_nccl_group(Group& host, Device device, bool one_process);

}  // namespace gradus::parallel
