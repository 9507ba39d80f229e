#include "parallel/meeting.h"

#include <sstream>

namespace gradus::parallel {
namespace {

/// Waking a rank takes longer than to copy or add so many bytes.
constexpr int64_t kOneThread = 128 << 10;
constexpr int kAll = -1;  // the shares of all ranks

}  // namespace

Meeting::Meeting(std::shared_ptr<ThreadWorld> w, std::string n, std::vector<int> ranks)
    : world(std::move(w)),
      id(world->new_group()),
      name(std::move(n)),
      text(std::make_shared<const std::string>(name + " of " + ranks_text(ranks))),
      world_ranks(std::move(ranks)),
      here_(world_ranks.size()),
      calls_(world_ranks.size()),
      buffers_(world_ranks.size()) {}

void Meeting::together(int rank, uint64_t number, const Call& call, Buffers mine,
                       const Share& share) {
  const int me = world_ranks[size_t(rank)];
  Lock lock = world->enter(me, {call, text, number});
  const uint64_t round = round_;
  const bool alone = call.shape.numel() * size_of(call.dtype) * size() <= kOneThread;
  const bool last = come(rank, call, mine);
  if (last)
    begin(lock, number, alone);
  else
    wait_for_others(lock, rank, round);
  if (lock.owns_lock() && round_ == round && (last || !alone))
    work(lock, alone ? kAll : rank, share);
  if (lock.owns_lock()) world->wait_out(lock, me, [&] { return round_ != round; });
  if (!error_.empty())
    throw Error(error_);  // the next round needs this rank: error_ stays as it is
}

/// True for the last to come.
bool Meeting::come(int rank, const Call& call, Buffers mine) {
  here_[size_t(rank)] = true;
  calls_[size_t(rank)] = call;
  buffers_[size_t(rank)] = mine;
  return ++count_ == size();
}

void Meeting::wait_for_others(Lock& lock, int rank, uint64_t round) {
  try {
    world->wait(
        lock, world_ranks[size_t(rank)], [&] { return working_ > 0 || round_ != round; },
        [&] { return missing(); });
  } catch (...) {
    here_[size_t(rank)] = false;
    --count_;
    throw;
  }
}

/// The last to come, for all.
void Meeting::begin(Lock& lock, uint64_t number, bool alone) {
  error_ = disagreement(number);
  if (!error_.empty()) return end_round(lock);
  working_ = alone ? 1 : size();
  if (!alone) world->wake(world_ranks);
}

void Meeting::work(Lock& lock, int share_of, const Share& share) {
  std::string failure;
  lock.unlock();
  try {
    for (int k = 0; k < size(); ++k)
      if (share_of == kAll || share_of == k) share(k);
  } catch (const std::exception& e) {
    failure = e.what();
  }
  lock.lock();
  if (!failure.empty()) error_ = failure;
  if (--working_ == 0) end_round(lock);
}

/// Gives the lock back.
void Meeting::end_round(Lock& lock) {
  here_.assign(here_.size(), false);
  count_ = 0;
  ++round_;
  lock.unlock();
  world->wake(world_ranks);
}

std::vector<int> Meeting::missing() const {
  std::vector<int> ranks;
  for (size_t k = 0; k < here_.size(); ++k)
    if (!here_[k]) ranks.push_back(world_ranks[k]);
  return ranks;
}

/// Two ranks that do not agree, and what each said; empty when all agree.
std::string Meeting::disagreement(uint64_t number) const {
  for (size_t k = 1; k < calls_.size(); ++k) {
    if (calls_[k].agrees_with(calls_[0])) continue;
    std::ostringstream out;
    out << "the ranks do not agree in call " << number << " of " << *text << ": rank "
        << world_ranks[0] << " called " << calls_[0] << ", rank " << world_ranks[k] << " called "
        << calls_[k];
    return out.str();
  }
  return {};
}

std::vector<const void*> Meeting::inputs(int64_t offset) const {
  std::vector<const void*> all;
  for (const Buffers& b : buffers_) all.push_back(static_cast<const char*>(b.in) + offset);
  return all;
}

std::vector<void*> Meeting::outputs(int64_t offset) const {
  std::vector<void*> all;
  for (const Buffers& b : buffers_) all.push_back(static_cast<char*>(b.out) + offset);
  return all;
}

}  // namespace gradus::parallel
