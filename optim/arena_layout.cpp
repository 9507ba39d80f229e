#include "optim/arena_layout.h"

#include <algorithm>

namespace gradus::optim {
namespace {

constexpr int64_t kAlignment = 64;  // elements: whole vectors and cache lines, also of 16-bit types

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

Kind kind_of(const nn::Shard& shard, const ArenaOptions& options) {
  if (options.tensor_ranks == 1) return Kind::whole;
  if (shard.dim >= 0 && shard.ranks > 1) return Kind::cut;
  return shard.partial_grad ? Kind::partial : Kind::whole;
}

int64_t length_of(const Slot& slot) { return round_up(slot.parameter.numel(), kAlignment); }

/// Where buckets begin. The last one is filled first, and the first takes what is left.
std::vector<bool> first_in_bucket(const std::vector<Slot>& slots, int64_t full) {
  std::vector<bool> is_first(slots.size());
  int64_t size = 0;
  for (size_t i = slots.size(); i-- > 0;) {
    size += length_of(slots[i]);
    is_first[i] = i == 0 || slots[i - 1].kind != slots[i].kind || size >= full ||
                  length_of(slots[i - 1]) >= full;
    if (is_first[i]) size = 0;
  }
  return is_first;
}

/// Adds a range that lies behind all others, joining what touches.
void append(std::vector<Range>& ranges, const Range& next) {
  if (!ranges.empty() && ranges.back().end == next.begin)
    ranges.back().end = next.end;
  else
    ranges.push_back(next);
}

}  // namespace

std::string Slot::name() const {
  std::string n = parameter.name();
  return n.empty() ? "parameter " + std::to_string(number) : n;
}

ArenaLayout::ArenaLayout(const std::vector<ParameterGroup>& groups, const ArenaOptions& options)
    : options_(options) {
  check(options.tensor_rank >= 0 && options.tensor_rank < options.tensor_ranks,
        "there is no tensor rank ", options.tensor_rank, " of ", options.tensor_ranks);
  check(options.slice >= 0 && options.slice < options.slices, "there is no slice ", options.slice,
        " of ", options.slices);
  check(options.bucket > 0, "a bucket of ", options.bucket, " elements");
  for (size_t g = 0; g < groups.size(); ++g) add_group(int(g), groups[g].parameters);
}

void ArenaLayout::add_group(int group, const std::vector<nn::Parameter>& parameters) {
  std::vector<Slot> slots;
  for (const nn::Parameter& p : parameters) {
    const int number = int(slots_.size() + slots.size());
    slots.push_back({p, 0, group, number, kind_of(p.shard, options_), 0});
  }
  std::stable_sort(slots.begin(), slots.end(),
                   [](const Slot& a, const Slot& b) { return a.kind < b.kind; });
  const std::vector<bool> is_first = first_in_bucket(slots, options_.bucket);
  const int64_t begin = size_;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_first[i]) buckets_.push_back({{size_, size_}, {}, 0, group, slots[i].kind});
    slots[i].offset = size_;
    slots[i].bucket = int(buckets_.size()) - 1;
    size_ += length_of(slots[i]);
    if (i + 1 == slots.size() || is_first[i + 1]) close_bucket();
  }
  ranges_.push_back({begin, size_});
  slots_.insert(slots_.end(), slots.begin(), slots.end());
}

/// Fills the last bucket up to whole slices.
void ArenaLayout::close_bucket() {
  Bucket& b = buckets_.back();
  const int64_t slice =
      round_up(size_ - b.all.begin, options_.slices * kAlignment) / options_.slices;
  b.all.end = size_ = b.all.begin + options_.slices * slice;
  b.own.begin = b.all.begin + options_.slice * slice;
  b.own.end = b.own.begin + slice;
  b.shift = b.own.begin - own_size_;
  own_size_ += slice;
}

int64_t ArenaLayout::gaps(const std::vector<Range>& ranges) const {
  int64_t elements = 0;
  for (const Range& r : ranges) {
    elements += r.size();
    for (const Slot& s : slots_) {
      const int64_t begin = std::max(r.begin, s.offset);
      const int64_t end = std::min(r.end, s.end());
      elements -= std::max<int64_t>(end - begin, 0);
    }
  }
  return elements;
}

OwnPart ArenaLayout::own_part(const Slot& slot) const {
  const Bucket& bucket = buckets_[size_t(slot.bucket)];
  const int64_t begin = std::max(bucket.own.begin, slot.offset);
  const int64_t end = std::min(bucket.own.end, slot.end());
  if (begin >= end) return {};
  return {begin - slot.offset, end - slot.offset, begin - bucket.shift};
}

Counted ArenaLayout::counted() const {
  Counted counted;
  for (const Bucket& b : buckets_)
    if (b.kind == Kind::cut || options_.tensor_rank == 0) append(counted.ranges, b.own);
  if (counted.ranges.empty()) counted.ranges.push_back({});
  counted.gaps = gaps(counted.ranges);
  return counted;
}

std::vector<Range> ArenaLayout::partial() const {
  std::vector<Range> ranges;
  for (const Bucket& b : buckets_)
    if (b.kind == Kind::partial) append(ranges, b.own);
  return ranges;
}

}  // namespace gradus::optim
