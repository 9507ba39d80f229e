#include "parallel/data_parallel.h"

#include <algorithm>
#include <numeric>

namespace gradus::parallel {

using optim::Bucket;
using optim::part_of;

DataParallel::DataParallel(optim::FlatBuffer& flat, const Communicator& group, bool overlap)
    : flat_(flat),
      group_(group),
      overlap_(overlap && group.size() > 1),
      is_timed_(overlap_ && flat.gradients().device().is_cuda()) {
  const optim::ArenaOptions& o = flat.layout().options();
  check(o.slices == 1 || (o.slices == group.size() && o.slice == group.rank()), "slice ", o.slice,
        " of ", o.slices, " cannot be updated by rank ", group.rank(), " of ", group.describe());
  order_.resize(flat.layout().buckets().size());
  std::iota(order_.rbegin(), order_.rend(), 0);  // until it is known better: from the end
  if (!overlap_) return;
  expect_all();
  for (size_t s = 0; s < flat.slots().size(); ++s)
    flat.slots()[s].parameter.register_leaf_hook(
        [this, s, alive = std::weak_ptr<int>(alive_)](const Tensor&) {
          if (!alive.expired()) arrived(s);
        });
}

void DataParallel::expect_last_backward() {
  if (!overlap_) return;
  is_last_ = true;
  expect_all();
}

void DataParallel::expect_all() {
  has_arrived_.assign(flat_.slots().size(), false);
  missing_.assign(order_.size(), 0);
  for (const optim::Slot& slot : flat_.slots()) ++missing_[size_t(slot.bucket)];
  ready_.clear();
}

// A leaf whose uses are recomputed in several segments arrives more than once: with only a part of its
// gradient, the first time.
void DataParallel::arrived(size_t s) {
  if (!is_last_) return;
  const optim::Slot& slot = flat_.slots()[s];
  const auto sent = order_.begin() + int64_t(sent_);
  check(
      std::find(order_.begin(), sent, slot.bucket) == sent, "the gradient of ", slot.name(),
      " grew after it was sent to the other data ranks: either expect_last_backward() came before "
      "the last backward, or several recomputed segments share this parameter, and then the ranks "
      "do without overlap");
  if (has_arrived_[s]) return;
  has_arrived_[s] = true;
  if (--missing_[size_t(slot.bucket)] > 0) return;
  ready_.push_back(slot.bucket);
  send_ready();
}

void DataParallel::send_ready() {
  size_t ready = sent_;
  while (ready < order_.size() && missing_[size_t(order_[ready])] == 0) ++ready;
  if (ready <= held_) return;
  while (sent_ < ready) send(order_[sent_++]);
}

void DataParallel::send(int bucket) {
  const Bucket& b = flat_.layout().buckets()[size_t(bucket)];
  flat_.finish_gradients(b.all);
  if (group_.size() == 1) return;
  const Tensor all = part_of(flat_.gradients(), b.all), own = part_of(flat_.gradients(), b.own);
  if (times_) times_->mark();
  pending_.push_back(start_aside({all}, [&] {
    if (times_) times_->mark();
    if (flat_.layout().options().slices > 1)
      group_.reduce_scatter_into(own, all);
    else
      group_.all_reduce_into(all);
    if (times_) times_->mark();
  }));
}

void DataParallel::finish() {
  if (times_) times_->mark_end_of_backward();
  while (sent_ < order_.size()) send(order_[sent_++]);
  for (Pending& p : pending_) p.join();
  pending_.clear();
  sent_ = 0;
  if (overlap_ && !is_order_final_) take_order_of_first_rank();
  if (times_ && times_->are_complete()) choose_when_to_send();
  is_last_ = false;
}

// Buckets that never became ready, because no backward reaches a part of them, come last.
void DataParallel::take_order_of_first_rank() {
  std::vector<int> order = ready_;
  for (int b : order_)
    if (std::find(ready_.begin(), ready_.end(), b) == ready_.end()) order.push_back(b);
  const std::vector<int64_t> all = group_.all_gather_values({order.begin(), order.end()});
  std::copy_n(all.begin(), order_.size(), order_.begin());
  is_order_final_ = true;
  if (is_timed_) times_ = std::make_unique<SendTimes>(flat_.gradients().device(), order_.size());
}

void DataParallel::choose_when_to_send() {
  const std::vector<int64_t> all = group_.all_gather_values(times_->shortest());
  times_.reset();
  held_ = size_t(common_buckets_to_hold(all, order_.size()));
}

void DataParallel::hold_back(int buckets) {
  check(buckets >= 0, "buckets to hold back: at least 0, got ", buckets);
  held_ = overlap_ ? size_t(buckets) : 0;
  is_timed_ = false;
  times_.reset();
}

// ---- parameters

ParameterGather::ParameterGather(optim::FlatBuffer& flat, const Communicator& group)
    : flat_(flat), group_(group) {
  if (flat.layout().options().slices > 1) flat.when_updated = [this](int bucket) { start(bucket); };
}

void ParameterGather::begin() {
  (void)flat_.parameters().raw();  // of all of them
  if (!is_order_final_ && read_->size() == flat_.order.size()) take_order_of_first_rank();
  read_->clear();
  started_ = 0;
}

void ParameterGather::start(int bucket) {
  check(started_ < flat_.order.size() && flat_.order[started_] == bucket, "bucket ", bucket,
        " was updated out of turn: call begin() before each update, and finish() after it");
  ++started_;
  const Bucket& b = flat_.layout().buckets()[size_t(bucket)];
  const Tensor all = part_of(flat_.parameters(), b.all), own = part_of(flat_.parameters(), b.own);
  write_aside(
      all, [&] { group_.all_gather_into(all, own); },
      [bucket, read = read_] { read->push_back(bucket); });
}

void ParameterGather::finish() {
  if (flat_.layout().options().slices == 1) return;
  while (started_ < flat_.order.size()) start(flat_.order[started_]);
}

// All ranks gather in one order.
void ParameterGather::take_order_of_first_rank() {
  const std::vector<int64_t> all = group_.all_gather_values({read_->begin(), read_->end()});
  std::copy_n(all.begin(), flat_.order.size(), flat_.order.begin());
  is_order_final_ = true;
}

}  // namespace gradus::parallel
