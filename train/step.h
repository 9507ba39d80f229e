#pragma once
// One step of training. With the micro-batches m = 1 … M of a batch:
//
//   L = Σ_m Σ_i ℓ_mi / Σ_m n_m         sums of losses over counts of targets, never a mean of means
//
// n_m are known before the first forward, so each backward already carries the factor 1/Σ n.
// Then: norm → skip if not finite → clip → update at the scheduled rate → the schedule advances.
//
// A step has two ends. begin_step hands all its work to the device and does not wait; finish_step
// waits for it and says what came of it. Steps are finished in the order in which they were begun, at
// most optim::kAhead − 1 of them later.
#include <string>

#include "train/dataset.h"
#include "train/run_state.h"

namespace gradus::train {

struct StepReport {
  double loss = 0;       // L, in nats a token
  double lr = 0;         // that the update used, or would have
  double grad_norm = 0;  // before clipping
  bool applied = true;
  std::string non_finite;  // of a skipped step: the first parameter whose gradient is not finite
};

/// A step that the device may still be at work on.
struct RunningStep {
  Tensor loss;  // L, on the device
  optim::StepResult result;
};

/// Consumes the next batch.
RunningStep begin_step(RunState& state, const TrainingData& data, const Settings& settings);
/// Advances the schedule if the update was applied.
StepReport finish_step(RunState& state, const RunningStep& step, const Settings& settings);

/// Both.
StepReport train_step(RunState& state, const TrainingData& data, const Settings& settings);

}  // namespace gradus::train
