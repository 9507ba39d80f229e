#pragma once
// What all optimizers share: groups, the arena, the order of a step.
//
//   loss.backward();
//   optim::StepResult result = adam.step(lr, {.max_norm = 1});     // norm → clip → update
//   adam.zero_grad();
//
// On a GPU step() only enqueues: it returns at once, and so does all else until `result` is read.
// To record a step as a CUDA graph, take it apart: request() tells the device what to do and stays
// outside of the graph, run() is the part that is recorded.
#include <functional>

#include "optim/step_result.h"

namespace gradus::optim {

struct StepOptions {
  double max_norm = kNoLimit;    // longer gradients are shortened to it
  double skip_above = kNoLimit;  // and with these the step is skipped
  bool count_zeros = false;
  /// If set: takes what this rank found in its gradients, (1, 3) f64, and returns what all ranks that
  /// share the model did, (ranks, 3), in stream order. Norm, zeros and skip are then those of all.
  std::function<Tensor(const Tensor& mine)> over_ranks{};
};

/// What an optimizer knows of a parameter, or of a part of it: the elements [begin, end) of this rank's
/// shard, in row-major order; padding of a shard is not among them. A part may begin and end within a row.
struct NamedState {
  std::string name;  // "blocks.0.qkv.weight.m"
  /// What is written to it is restored. (end − begin), or the parameter's shape where all of it is here.
  StateView value;
  nn::Parameter parameter;
  int64_t begin = 0, end = 0;
};

class Optimizer {
 public:
  explicit Optimizer(std::vector<ParameterGroup> groups, const ArenaOptions& arena = {});
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void zero_grad() { flat_.zero_grad(); }

  /// One step with the gradients that backward has summed. If their norm is not finite the step is
  /// skipped, as it is when a kernel recorded an Error (an index out of range): nothing changes, and
  /// reading the result throws that Error.
  StepResult step(double lr, const StepOptions& options = {});

  // ---- the two halves of a step
  /// The rates of an update, by the number of updates applied before it; see Note [the rate of a step
  /// that cannot be known].
  using RatesOf = std::function<Rates(int64_t updates)>;
  StepResult request(const RatesOf& rates, const StepOptions& options = {});
  /// `scaler`, if not null, is on the parameters' device (see optim/mixed_precision.h).
  void run(const StepOptions& options = {}, GradScaler* scaler = nullptr);

  /// The update alone, with gradients multiplied by `gradient_scale`. They are read, never written.
  void update(double lr, double gradient_scale = 1);

  /// Updates applied so far. Waits for the device.
  int64_t steps() const { return control_.updates(); }
  void restore_steps(int64_t steps) { control_.restore_updates(steps); }
  /// State of all parameters, as far as it is here. Restoring: write to it, then restore_steps.
  /// (Where a checkpoint has no masters: flat().reload_masters().)
  std::vector<NamedState> state() const;

  /// What decays weights unless rates say otherwise.
  virtual double weight_decay() const = 0;

  FlatBuffer& flat() { return flat_; }
  const FlatBuffer& flat() const { return flat_; }

 protected:
  struct Arena {
    std::string name;
    Tensor values;
  };
  /// Updates all groups, by numbers that are on the device. Must leave everything as it is where
  /// numbers->applied is false.
  virtual void apply(const StepNumbers* numbers) = 0;
  virtual Betas betas() const { return {}; }
  virtual void validate() const {}
  virtual std::vector<Arena> arenas() const { return {}; }

 private:
  StepResult ask(StepRequest request, const RatesOf& rates);
  void apply();

  FlatBuffer flat_;
  std::shared_ptr<const std::vector<Slot>> slots_;  // for results
  Counted counted_;
  StepControl control_;
};

}  // namespace gradus::optim
