#pragma once
// Who carries tensors on GPUs for the ranks of a group of the host's:
//
//   each rank has its own GPU            NCCL                                    parallel/nccl_group.h
//     the same, in one process           and copy engines, for what is large     parallel/peer_group.h
//   ranks of one process share a GPU     host memory, slowly (a line says so)    parallel/staged_group.h
//   processes share a GPU                nobody: an Error on all ranks
#include <memory>

#include "parallel/group.h"

namespace gradus::parallel {

/// This rank's end; called by all ranks of `host`, which outlives it, each with its own device.
std::unique_ptr<Group> make_gpu_group(Group& host, Device device);

/// A handle of a group that somebody else owns.
Communicator view_of(Group& group);

}  // namespace gradus::parallel
