#pragma once
// Where the threads of a group tell each other what their GPUs are about to do.
//
//   come    each rank leaves its call and its memory, and goes on when all have
//   part    each rank has enqueued what it does; goes on when all have
//
// Threads are close together and calls are many, so they spin; for long only while one of them is late.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/call.h"

namespace gradus::parallel {

class PeerMeeting {
 public:
  struct Place {
    Call call{};
    const void* memory = nullptr;  // that others read
    /// Events of its stream: the memory may be read; it has read that of the others. Others may ask for them when
    /// this rank has gone.
    std::shared_ptr<void> ready{}, done{};
  };
  struct Patience {
    double seconds = 20;                     // or those of a WaitLimit
    std::function<std::string()> failure{};  // of the group, see Group::failure_probe
  };

  PeerMeeting(std::string group, int ranks) : group_(std::move(group)), seats_(size_t(ranks)) {}

  /// Error when the ranks do not agree, one of them has failed, or one does not come.
  void come(int rank, Place place, const Patience& patience);
  void part(int rank, const Patience& patience);
  /// Of a rank, between come and part.
  const Place& place(int rank) const { return seats_[size_t(rank)].place; }

 private:
  struct alignas(64) Seat {
    Place place;
    std::atomic<uint64_t> come{0}, parted{0};  // how often
  };
  void wait(int rank, const Patience& patience, std::atomic<uint64_t> Seat::*count) const;

  std::string group_;
  std::vector<Seat> seats_;
};

}  // namespace gradus::parallel
