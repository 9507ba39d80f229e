#include "parallel/peer_meeting.h"

#include <chrono>
#include <thread>

#include "parallel/wait_limit.h"

namespace gradus::parallel {

void PeerMeeting::come(int rank, Place place, const Patience& patience) {
  Seat& seat = seats_[size_t(rank)];
  seat.place = std::move(place);
  seat.come.fetch_add(1, std::memory_order_release);
  wait(rank, patience, &Seat::come);
  for (size_t k = 0; k < seats_.size(); ++k)
    check(seats_[k].place.call.agrees_with(seat.place.call), "the ranks of ", group_,
          " do not agree in call ", seat.come.load(), ": rank ", rank, " called ", seat.place.call,
          ", rank ", k, " called ", seats_[k].place.call);
}

void PeerMeeting::part(int rank, const Patience& patience) {
  seats_[size_t(rank)].parted.fetch_add(1, std::memory_order_release);
  wait(rank, patience, &Seat::parted);
}

void PeerMeeting::wait(int rank, const Patience& patience,
                       std::atomic<uint64_t> Seat::*count) const {
  using Clock = std::chrono::steady_clock;
  const Seat& mine = seats_[size_t(rank)];
  const uint64_t number = (mine.*count).load(std::memory_order_relaxed);
  const double seconds = wait_limit(patience.seconds);
  const auto begun = Clock::now();
  for (size_t k = 0; k < seats_.size(); ++k)
    for (int turn = 1; (seats_[k].*count).load(std::memory_order_acquire) < number; ++turn) {
      if (turn % 1024 != 0) continue;
      std::this_thread::yield();
      const std::string failure = patience.failure ? patience.failure() : "";
      check(failure.empty(), "", "rank ", rank, " of ", group_, " ends in ", mine.place.call, ": ",
            failure);
      check(Clock::now() - begun < std::chrono::duration<double>(seconds), "rank ", rank, " of ",
            group_, " has waited for ", seconds, " s in ", mine.place.call, ", call ", number,
            "; not there: rank ", k);
    }
}

}  // namespace gradus::parallel
