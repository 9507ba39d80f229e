#pragma once
// Who carries tensors on GPUs for the ranks of a group of the host's:
//
//   each rank has its own GPU            NCCL                                    parallel/nccl_group.h
//     the same, in one process           and copy engines, for what is large     parallel/peer_group.h
//   ranks of one process share a GPU     host memory, slowly (a line says so)    parallel/staged_group.h
//   processes share a GPU                nobody: an Error on all ranks
//     and each has its own NCCL_HOSTID   NCCL, slowly, as between hosts: for tests on one GPU
//
// NCCL refuses two ranks on one GPU of one host. NCCL_HOSTID is its variable for what host a process is on;
// the GPU then turns from process to process, and what they send goes through the network.
#include <memory>

#include "parallel/group.h"

namespace gradus::parallel {

/// This rank's end; called by all ranks of `host`, which outlives it, each with its own device.
std::unique_ptr<Group> make_gpu_group(Group& host, Device device);

/// A handle of a group that somebody else owns.
Communicator view_of(Group& group);

}  // namespace gradus::parallel
