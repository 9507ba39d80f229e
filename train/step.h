#pragma once
// The steps of a training run. With the micro-batches m = 1 … M of a batch:
//
//   L = Σ_m Σ_i ℓ_mi / Σ_m n_m         sums of losses over counts of targets, never a mean of means
//
// n_m are known before the first forward, so each backward already carries the factor 1/Σ n.
// On many ranks Σ n is that of all of them, so gradients are plain sums over the data ranks; each computes
// its own samples (train/samples.h). The step draws one mask of dropout, of all its samples.
//
// Then: norm → skip if not finite → clip → update at the scheduled rate → the schedule advances.
//
// A step has two ends. begin() hands all its work to the device and does not wait; finish() waits for
// it and says what came of it. Steps are finished in the order in which they were begun, at most
// kMostRunning − 1 of them later.
//
//   host      batch k, enqueue k ─▶ batch k+1, enqueue k+1 ─▶ finish k ─▶ …
//   device              ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄ step k ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄ step k+1 …
//
// With a CUDA graph the third step is recorded and that and all later ones are one launch each: the
// batch is copied to where the graph reads it, and the rate, the clip and the number of the step are
// read from the optimizer's mailbox (optim/step_numbers.h). Dropout draws from a stream whose number
// is an argument of its kernels, so a model that drops has no graph.
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/cuda_graph.h"
#include "train/device_batch.h"
#include "train/run_state.h"
#include "train/samples.h"

namespace gradus::train {

inline constexpr int kMostRunning = 4;

struct StepReport {
  int64_t step = 0;      // its number from 1
  int64_t samples = 0;   // consumed up to its end
  int64_t targets = 0;   // N = Σ n_m
  double loss = 0;       // L, in nats a token
  double lr = 0;         // that the update used, or would have
  double grad_norm = 0;  // before clipping
  bool applied = true;
  double loss_scale = 1;
  std::string non_finite;    // of a skipped step: the first parameter whose gradient is not finite
  std::string why_skipped;   // in words
  bool is_hopeless = false;  // the loss scale is as low as it may be, and gradients overflow
};

class StepRunner {
 public:
  /// All of these must live longer. Error when a graph is asked for with dropout, without a GPU, for a
  /// BERT, or on several ranks.
  StepRunner(RunState& state, const TrainingData& data, const Settings& settings,
             bool graph = false);

  /// Consumes the next batch.
  void begin();
  /// Of the oldest step that is running. Advances the schedule if its update was applied.
  StepReport finish();
  /// Steps that have begun and are not finished.
  int running() const { return int(running_.size()); }

 private:
  struct Running {
    optim::StepResult result;
    int64_t step, samples, targets;
  };
  /// Of all ranks together.
  struct Counts {
    int64_t targets = 0, pairs = 0;
  };
  Counts count(const Batch& local) const;
  void compute(const Batch& batch, const Counts& counts);
  Tensor loss_of_part(const Batch& batch, int64_t part, const Counts& counts, Generator* dropout);
  Staging& loss_of(int64_t step) { return losses_[size_t(step) % kMostRunning]; }

  RunState& state_;
  const TrainingData& data_;
  const Settings& settings_;
  StepSamples samples_;
  DeviceBatch batch_;
  std::optional<CudaGraph> graph_;
  Tensor loss_;                 // L of the newest step, on the device
  std::deque<Staging> losses_;  // on their way to the host
  std::deque<Running> running_;
};

/// Of a checkpoint's meta data: what the last step before it found.
nlohmann::json last_step_of(const StepReport& report);

/// Begins and finishes one step.
StepReport train_step(RunState& state, const TrainingData& data, const Settings& settings);

}  // namespace gradus::train
