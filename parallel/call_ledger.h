#pragma once
// What the ranks of one process asked of a NCCL communicator, call by call. NCCL mixes the data of calls that
// do not agree, or hangs; here the last rank to come sees that, and nobody waits for anybody.
//
//   number    rank 0                   rank 1
//      7      all_reduce (3,) f32      all_reduce (3,) f32      agrees: forgotten
//      8      all_reduce (3,) f32      (not here yet)           kept until it comes
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/call.h"

namespace gradus::parallel {

class CallLedger {
 public:
  /// The one of the communicator with this id; all ranks here that ask for it share it.
  static std::shared_ptr<CallLedger> of(const std::string& id);

  /// `rank` comes with `call` as the number-th of its channel: one is the collectives of all `ranks`, each
  /// ordered pair of ranks has another. Error when it does not agree with what another rank said.
  struct Channel {
    int from = -1, to = -1;
    auto operator<=>(const Channel&) const = default;
  };
  void enter(const std::string& group, Channel channel, int ranks, int rank, const Call& call);

 private:
  struct Entry {
    Call call;
    int rank = 0, come = 0;
  };
  std::mutex mutex_;
  std::map<std::pair<Channel, int>, uint64_t> numbers_;  // of the next call, by channel and rank
  std::map<std::pair<Channel, uint64_t>, Entry> open_;
};

}  // namespace gradus::parallel
