#pragma once
// Ranks as threads of this process: nothing to install, and a debugger sees all of them.
//
//   run_ranks(4, [](Communicator world) {
//     Tensor x = full({3}, world.rank());
//     std::cout << world.all_reduce(x);           // 0 + 1 + 2 + 3, on each rank
//   });
#include <functional>

#include "parallel/communicator.h"

namespace gradus::parallel {

struct RankOptions {
  double timeout = 20;  // seconds that a rank waits before it says for whom (parallel/wait_limit.h)
  bool strict_send = false;  // send() returns when the message was received, not before
  uint64_t delay_seed = 0;   // not 0: random delays before each call, to bring races out
};

/// Runs body(world) on n threads and returns when all have. The first Error is rethrown: a rank that
/// throws ends the waits of all others.
void run_ranks(int n, const std::function<void(Communicator world)>& body,
               RankOptions options = {});

}  // namespace gradus::parallel
