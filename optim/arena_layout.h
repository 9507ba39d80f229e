#pragma once
// Where parameters lie in an arena, and which part of it is whose.
//
// Inside a group the parameters that are cut over the tensor ranks come first, then those that are whole
// but whose gradient is a part of a sum, then the others: so "count this", "sum that" are a few ranges.
// Each kind stays in the order in which it was given, and where nothing is cut that is the order of all.
//
//   group 0                                                   group 1
//   ┌──────────────┬──────────────┬───────────────┬──────────┬───────── …
//   │ cut: wte qkv │ cut: up down │ partial: wpe  │ whole: … │ cut: …
//   └──────────────┴──────────────┴───────────────┴──────────┴───────── …
//     bucket 0       bucket 1       bucket 2        bucket 3
//
// A bucket is what ranks send each other at a time: parameters of one group and one kind. Buckets are
// filled from the end, since backward reaches the last layers first.
//
// With slices, each data rank updates one slice of each bucket (ZeRO-1, Rajbhandari et al. 2020), wherever
// parameters begin and end; it has masters and moments of those alone, one behind the other:
//
//   arena           │ 0 │ 1 │ 2 │ 0 │ 1 │ 2 │          │ of slice 1 of 3
//   state arenas    │ 1 │ 1 │                           index in the arena = index here + bucket's shift
#include <limits>

#include "optim/parameter_group.h"

namespace gradus::optim {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Plain numbers: optim/ knows no communicator.
struct ArenaOptions {
  int tensor_rank = 0, tensor_ranks = 1;  // of those that cut parameters among them
  int slice = 0, slices = 1;              // which slice of each bucket is updated here, of how many
  /// A bucket takes no further parameter once it has so many elements; a parameter with so many (a table,
  /// whose gradient is complete when all others are) has one for itself.
  int64_t bucket = std::numeric_limits<int64_t>::max();
};

enum class Kind { cut, partial, whole };

/// Where a parameter lies.
struct Slot {
  nn::Parameter parameter;
  int64_t offset = 0;
  int group = 0, number = 0;  // its number in the order given
  Kind kind = Kind::whole;
  int bucket = 0;
  int64_t end() const {
    return offset + parameter.real_numel();
  }                          // of what is not padding of a shard
  std::string name() const;  // the parameter's, or "parameter 3" (its number) if it has none
};

struct Bucket {
  Range all;          // in the arena
  Range own;          // of it, what is updated here
  int64_t shift = 0;  // from state arenas to the arena
  int group = 0;
  Kind kind = Kind::whole;
};

/// The elements [begin, end) of a parameter that are updated here, without padding of a shard, and the
/// place of the first of them in state arenas.
struct OwnPart {
  int64_t begin = 0, end = 0, place = 0;
};

/// What this rank adds to norms and counts, so that together the ranks count every element once.
struct Counted {
  std::vector<Range> ranges;  // ascending; at least one, which may be empty
  int64_t gaps = 0;           // elements in them that belong to no parameter
};

class ArenaLayout {
 public:
  /// Error unless the options make sense.
  ArenaLayout(const std::vector<ParameterGroup>& groups, const ArenaOptions& options);

  const ArenaOptions& options() const { return options_; }
  const std::vector<Slot>& slots() const { return slots_; }        // as they lie
  const std::vector<Bucket>& buckets() const { return buckets_; }  // as they lie
  Range range(int group) const { return ranges_[size_t(group)]; }
  int64_t size() const { return size_; }          // of the arena
  int64_t own_size() const { return own_size_; }  // of state arenas
  int64_t gaps(const std::vector<Range>& ranges) const;
  OwnPart own_part(const Slot& slot) const;
  /// Cut parameters are counted by each rank, all others by the first.
  Counted counted() const;
  /// Where gradients, once summed over data ranks, are still to be summed over tensor ranks.
  std::vector<Range> partial() const;

 private:
  void add_group(int group, const std::vector<nn::Parameter>& parameters);
  void close_bucket();

  ArenaOptions options_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  std::vector<Range> ranges_;
  int64_t size_ = 0, own_size_ = 0;
};

}  // namespace gradus::optim
