#pragma once
// Where the threads of a group meet, one collective after the other.
//
//   gathering   each rank that comes leaves its call and its buffers; the last one compares the calls
//   work        each rank computes its share, reading from all; or the last to come computes all shares,
//               where that takes less time than to wake the others
//   over        all leave: the round is counted
//
// Note [others use my memory]: from the moment when all have come, a rank's buffers are read and written
// by others. It does not leave before all shares are done, even when a rank has failed meanwhile; shares
// wait for nobody, so that takes no longer than a copy. A rank that gives up before withdraws.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/thread_world.h"

namespace gradus::parallel {

/// All but the constants is guarded by the world's lock.
class Meeting {
 public:
  /// Memory of a rank that the others may use until the call is over.
  struct Buffers {
    const void* in = nullptr;
    void* out = nullptr;
  };
  using Share = std::function<void(int rank)>;

  Meeting(std::shared_ptr<ThreadWorld> world, std::string name, std::vector<int> world_ranks);

  int size() const { return int(world_ranks.size()); }
  /// Calls share(k) for each rank k, on one thread or another, once all have come with the same call,
  /// which is the `number`-th of `rank`. Error when they do not agree.
  void together(int rank, uint64_t number, const Call& call, Buffers mine, const Share& share);

  /// For shares. Each rank's buffer, `offset` bytes after its beginning.
  std::vector<const void*> inputs(int64_t offset) const;
  std::vector<void*> outputs(int64_t offset) const;
  const void* input(int rank) const { return buffers_[size_t(rank)].in; }
  void* output(int rank) const { return buffers_[size_t(rank)].out; }

  const std::shared_ptr<ThreadWorld> world;
  const uint64_t id;
  const std::string name;
  const std::shared_ptr<const std::string> text;  // "tp of ranks 0, 1"
  const std::vector<int> world_ranks;

 private:
  using Lock = ThreadWorld::Lock;
  bool come(int rank, const Call& call, Buffers mine);
  void wait_for_others(Lock& lock, int rank, uint64_t round);
  void begin(Lock& lock, uint64_t number, bool alone);
  void work(Lock& lock, int share_of, const Share& share);
  void end_round(Lock& lock);
  std::vector<int> missing() const;
  std::string disagreement(uint64_t number) const;

  std::vector<bool> here_;
  std::vector<Call> calls_;
  std::vector<Buffers> buffers_;
  int count_ = 0;       // of those who are here
  int working_ = 0;     // how many have work to do
  uint64_t round_ = 0;  // rounds that are over
  std::string error_;   // of the newest round
};

}  // namespace gradus::parallel
