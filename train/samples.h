#pragma once
// Which samples of a step are whose. With M micro-batches of R windows for each of D data ranks, sample j
// of the step is window i of micro-batch m of rank d, where
//
//   j = m D R + d R + i            M = 2, D = 2, R = 2:    micro-batch   0        1
//                                                          rank 0        0 1      4 5
//                                                          rank 1        2 3      6 7
//
// So all layouts see the same samples in a step, and masks of dropout that are counted by j are the same.
// A step always has all of its M D R samples, since an epoch may end within it (train/dataset.h): no rank
// is ever short of one. Held-out data is not cut that evenly: evaluation ignores what lies past its end.
#include "train/batch.h"
#include "train/settings.h"

namespace gradus::train {

struct StepSamples {
  int64_t micro_batches = 1, data_ranks = 1;
  int64_t rank = 0;  // of the data ranks
  int64_t rows = 1;  // windows of a micro-batch on one rank

  /// Error when the batch does not divide.
  StepSamples(const Settings& s, int data_rank);

  int64_t local() const { return micro_batches * rows; }
  /// The first sample of a micro-batch here, counted within the step.
  int64_t first(int64_t micro_batch) const { return (micro_batch * data_ranks + rank) * rows; }
};

/// The samples of this rank, micro-batch after micro-batch, of the step that begins with `first_sample`.
Batch local_batch(const TrainingData& data, int64_t first_sample, const StepSamples& samples);

}  // namespace gradus::train
