#pragma once
// The training loop: step, evaluate, record, show, save, until the last step or until asked to stop.
//
// On a GPU a step is begun before the one before it is finished, so that the device need not wait for
// the host between them; before an evaluation and a save all are finished.
//
// A save that fails (a full disk) leaves the earlier checkpoints and the run as they were. Within the
// run that is said and training goes on, since stopping would lose more; at its end it is an Error.
#include <functional>
#include <optional>
#include <string>

#include "train/loss.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/step.h"

namespace gradus::train {

struct TrainerOptions {
  std::string directory{};       // of checkpoints and metrics; it exists
  int64_t stop_at = 0;           // step after which to stop; 0: none
  std::function<bool()> stop{};  // asked between two steps; one rank that says yes stops all
  bool cuda_graph = false;       // see train/step.h
  double patience = 30;          // seconds that a rank is waited for in a step, or three steps
  Disk disk{};
};

struct Outcome {
  bool finished = false;             // all steps are taken
  std::optional<Scores> validation;  // of a finished run, over all held-out tokens
  std::string checkpoint;
};

class Trainer {
 public:
  /// A state that was loaded must come from the newest checkpoint in the directory.
  Trainer(const Settings& settings, const TrainingData& training, const ValidationData& validation,
          RunState& state, ProgressDisplay& display, TrainerOptions options);

  Outcome run();

 private:
  bool asked_to_stop() const;
  bool must_pause() const;
  bool begin_step();
  void finish_steps(int left_running);
  void after(const StepReport& report);
  void evaluate(Extent extent);
  void record(const StepReport& report);
  void show(const StepReport& report);
  void report_skip(const StepReport& report);
  void save();
  void save_or_go_on();
  std::optional<Utilisation> utilisation() const;

  const Settings& settings_;
  const TrainingData& training_;
  const ValidationData& validation_;
  RunState& state_;
  ProgressDisplay& display_;
  TrainerOptions options_;
  StepRunner steps_;
  std::optional<MetricsFile> metrics_;  // of the first rank
  StepReport last_;
  bool metrics_fail_ = false;
  Pace pace_;
  double finished_at_;             // the last step, with what followed it
  std::optional<double> slowest_;  // seconds of a step since the first, once that is finished
  std::optional<Evaluation> evaluation_;  // of this step
};

}  // namespace gradus::train
