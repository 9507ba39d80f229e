#pragma once
// What the threads of one run_ranks share: one lock, where each rank is, and whether one has failed.
//
//   a rank waits       until what it waits for has happened, or never can: a rank has failed, one that
//                      it waits for has returned, or the time is up
//   a rank throws      the waits of all others end, with an Error that names it
//
// A rank waits in one place at a time, so each has its own condition variable: whoever makes progress
// possible wakes those whom it concerns.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/call.h"
#include "parallel/run_ranks.h"

namespace gradus::parallel {

/// Where a rank is, for the messages of those who wait for it.
struct Place {
  Call call;
  std::shared_ptr<const std::string> group;  // as Communicator::describe says it
  uint64_t number = 0;                       // of the call, counted in the group
  friend std::ostream& operator<<(std::ostream& out, const Place& place);
};

/// On its way between two threads (parallel/thread_mail.h).
struct Message;
struct Address {
  uint64_t group;     // see ThreadWorld::new_group
  int from, to, tag;  // ranks of the whole program
  auto operator<=>(const Address&) const = default;
};

class ThreadWorld {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using Done = std::function<bool()>;
  using Missing = std::function<std::vector<int>()>;  // ranks that this one waits for

  ThreadWorld(int ranks, RankOptions options);

  const RankOptions& options() const { return options_; }

  /// The number of a new group. No other will have it, so no message finds the wrong one.
  uint64_t new_group() { return ++groups_; }

  /// Begins a call of `rank`: after a random delay where those are wished, returns the lock. Error when
  /// a rank has failed.
  Lock enter(int rank, Place place);
  /// Waits until `done`; asks with the lock held. Error where that cannot happen any more.
  void wait(Lock& lock, int rank, const Done& done, const Missing& missing);
  /// Waits until `done`, whatever happens: others read this rank's memory until then.
  void wait_out(Lock& lock, int rank, const Done& done);
  /// After a change of what they wait for, made under the lock; the lock may be free again.
  void wake(const std::vector<int>& ranks);

  /// The body of `rank` is over: it has returned, or thrown.
  void returned(int rank);
  void failed(int rank, std::exception_ptr error);
  /// Which rank has failed, and why; empty: none has.
  std::string failure();
  /// After the threads have ended: throws what the first of them threw.
  void rethrow() const;

  /// What was sent and not yet received. Under the lock.
  std::map<Address, std::deque<std::shared_ptr<Message>>> mail;

 private:
  struct Rank {
    std::condition_variable wake;
    Place place;
    bool waits = false, returned = false;
  };
  void check_hope(int rank, const Missing& missing) const;
  [[noreturn]] void time_is_up(int rank, const Missing& missing);
  void note_failure(int rank, const std::string& text);
  std::string report() const;

  RankOptions options_;
  std::atomic<uint64_t> groups_{0};
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  int returned_ = 0;
  int first_failed_ = -1;
  std::string error_;
};

}  // namespace gradus::parallel
