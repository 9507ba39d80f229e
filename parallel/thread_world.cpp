#include "parallel/thread_world.h"

#include <chrono>
#include <sstream>
#include <thread>

#include "core/random.h"
#include "parallel/wait_limit.h"

namespace gradus::parallel {

std::ostream& operator<<(std::ostream& out, const Place& place) {
  return out << place.call << ", call " << place.number << " of " << *place.group;
}

ThreadWorld::ThreadWorld(int ranks, RankOptions options)
    : options_(options), ranks_(size_t(ranks)) {}

ThreadWorld::Lock ThreadWorld::enter(int rank, Place place) {
  Rank& me = ranks_[size_t(rank)];
  if (options_.delay_seed != 0) {  // up to a quarter of a millisecond, and often none
    const uint64_t random = mix(mix(options_.delay_seed + uint64_t(rank)) + place.number);
    if (random & 1) std::this_thread::sleep_for(std::chrono::nanoseconds(random >> 46));
  }
  Lock lock(mutex_);
  me.place = std::move(place);
  check_hope(rank, {});
  return lock;
}

void ThreadWorld::wait(Lock& lock, int rank, const Done& done, const Missing& missing) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::duration<double>(wait_limit(options_.timeout)));
  Rank& me = ranks_[size_t(rank)];
  struct Waits {
    bool& flag;
    explicit Waits(bool& f) : flag(f) { flag = true; }
    ~Waits() { flag = false; }
  } waits(me.waits);
  while (!done()) {
    check_hope(rank, missing);
    if (me.wake.wait_until(lock, end) == std::cv_status::timeout && !done())
      time_is_up(rank, missing);
  }
}

void ThreadWorld::wait_out(Lock& lock, int rank, const Done& done) {
  ranks_[size_t(rank)].wake.wait(lock, done);
}

void ThreadWorld::wake(const std::vector<int>& ranks) {
  for (int k : ranks) ranks_[size_t(k)].wake.notify_one();
}

void ThreadWorld::check_hope(int rank, const Missing& missing) const {
  const Rank& me = ranks_[size_t(rank)];
  check(first_failed_ < 0, "rank ", rank, " ends in ", me.place,
        ", because another has failed: rank ", first_failed_, ": ", error_);
  if (returned_ == 0 || !missing) return;
  for (int k : missing())
    check(!ranks_[size_t(k)].returned, "rank ", rank, " waits in ", me.place, " for rank ", k,
          ", which has returned");
}

/// Fails for all at once, while the others still are where they wait.
void ThreadWorld::time_is_up(int rank, const Missing& missing) {
  std::ostringstream out;
  out << "rank " << rank << " has waited for " << wait_limit(options_.timeout) << " s in "
      << ranks_[size_t(rank)].place << "; not there: " << ranks_text(missing()) << report();
  note_failure(rank, out.str());
  throw Error(out.str());
}

/// The first counts. Under the lock.
void ThreadWorld::note_failure(int rank, const std::string& text) {
  if (first_failed_ < 0) {
    first_failed_ = rank;
    error_ = text;
  }
  for (Rank& other : ranks_) other.wake.notify_one();
}

std::string ThreadWorld::report() const {
  std::ostringstream out;
  for (size_t k = 0; k < ranks_.size(); ++k) {
    const Rank& rank = ranks_[k];
    out << "\n  rank " << k;
    if (rank.returned)
      out << " has returned";
    else if (rank.waits)
      out << " waits in " << rank.place;
    else if (rank.place.group)
      out << " is outside of calls; its last was " << rank.place;
    else
      out << " has not called anything yet";
  }
  return out.str();
}

void ThreadWorld::returned(int rank) {
  const Lock lock(mutex_);
  ranks_[size_t(rank)].returned = true;
  ++returned_;
  for (Rank& other : ranks_) other.wake.notify_one();
}

void ThreadWorld::failed(int rank, std::exception_ptr error) {
  std::string text = "an exception that says nothing";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
  }
  const Lock lock(mutex_);
  if (first_failed_ < 0) {
    first_failed_ = rank;
    error_ = text;
  }
  for (Rank& other : ranks_) other.wake.notify_one();
}

std::string ThreadWorld::failure() {
  const Lock lock(mutex_);
  return first_failed_ < 0
             ? ""
             : "another has failed: rank " + std::to_string(first_failed_) + ": " + error_;
}

void ThreadWorld::rethrow() const {
  if (first_failed_ >= 0) throw Error("rank " + std::to_string(first_failed_) + ": " + error_);
}

}  // namespace gradus::parallel
