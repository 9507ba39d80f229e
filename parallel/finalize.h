#pragma once
// The end of a training step on many ranks: from the gradients that each rank has to the same parameters
// on all that hold them.
//
//   1  data ranks       Σ over samples: all-reduce, or with slices (ZeRO-1) a reduce-scatter
//   2  tensor ranks     Σ of partial gradients (sequence parallelism), where a rank has the sum of 1
//   3  pipeline stages  Σ over the copies of a tied table: its place, for when there are stages
//   4  norm             Σ g², each element counted once, over the ranks that share the model
//   5  skip or clip     all ranks decide by the same numbers, and alike: step counts and loss scale stay equal
//   6  update           of the own slices
//   7  gather           the slices' parameters to all data ranks, each bucket beside the update of the next and
//                       beside the next forward, which waits for it where it reads it first
//
// The order matters: with slices, 2 and 3 would otherwise add slices of different elements, or write to what
// is being sent. All of it is handed to the device; the host waits for nothing, but in the first steps for what
// ranks agree on: the order of buckets, and when they are sent.
#include "optim/mixed_precision.h"
#include "parallel/data_parallel.h"
#include "parallel/process_grid.h"

namespace gradus::parallel {

/// The groups of a rank.
struct TrainingGroups {
  Communicator tp;     // cut the model's matrices among them
  Communicator dp;     // have the same part of the model, and other samples (or, with cp, tokens)
  Communicator tp_dp;  // all of these
};
TrainingGroups training_groups(const ProcessGrid& grid);  // of a model_grid

/// How an arena is divided for these groups. `zero`: data ranks share the update; `bucket`: elements.
optim::ArenaOptions arena_options(const TrainingGroups& groups, bool zero,
                                  int64_t bucket = 8'000'000);

class Finalizer {
 public:
  /// The optimizer has the arena options of these groups, which is an Error otherwise, and must live longer.
  /// `overlap`: gradients are sent while backward goes on.
  Finalizer(optim::Optimizer& optimizer, TrainingGroups groups, bool overlap = true);

  /// To be called before the last backward of each step.
  void expect_last_backward() { data_.expect_last_backward(); }
  /// Of DataParallel. 0, where there are tensor ranks, unless it is set.
  int held_back() const { return data_.held_back(); }
  void hold_back(int buckets) { data_.hold_back(buckets); }
  /// In place of precision.run(options), which it calls.
  void run(optim::MixedPrecision& precision, optim::StepOptions options = {});

 private:
  void sum_partial_gradients();

  optim::FlatBuffer& flat_;
  TrainingGroups groups_;
  Communicator counting_;  // whose counted elements are all of the model's, each once
  DataParallel data_;
  ParameterGather gather_;
};

/// Error unless all data ranks have the same parameters, and all tensor ranks the same of those that are
/// not cut; it names a parameter and two ranks. Waits for the device.
void check_same_parameters(const optim::FlatBuffer& flat, const TrainingGroups& groups);

}  // namespace gradus::parallel
