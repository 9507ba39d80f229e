#pragma once
// What all optimizers share: groups, the arena, the order of a step.
//
//   loss.backward();
//   optim::StepResult result = adam.step(lr, {.max_norm = 1});     // norm → clip → update
//   adam.zero_grad();
#include <limits>

#include "optim/flat_buffer.h"

namespace gradus::optim {

struct StepOptions {
  double max_norm =
      std::numeric_limits<double>::infinity();  // longer gradients are shortened to it
};

struct StepResult {
  bool applied = true;     // false: a gradient was not finite, and nothing was changed
  double grad_norm = 0;    // before clipping
  std::string non_finite;  // the first parameter with a gradient that is not finite
};

/// A tensor of an optimizer's state, in parameter space.
struct NamedState {
  std::string name;  // "blocks.0.qkv.weight.m"
  Tensor value;      // a view: what is copied into it is restored
};

class Optimizer {
 public:
  explicit Optimizer(std::vector<ParameterGroup> groups) : flat_(std::move(groups)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void zero_grad() { flat_.zero_grad(); }

  /// One step with the gradients that backward has summed. If their norm is not finite the step is
  /// skipped. Throws what a kernel recorded (an index out of range) before anything is changed.
  StepResult step(double lr, StepOptions options = {});

  /// The update alone, with gradients multiplied by `gradient_scale`. They are read, never written.
  void update(double lr, double gradient_scale = 1);

  /// Updates applied so far.
  int64_t steps() const { return steps_; }
  void restore_steps(int64_t steps) { steps_ = steps; }
  /// The state of all parameters. Restoring: copy into it, then restore_steps. (Without masters in a
  /// checkpoint: flat().reload_masters().)
  std::vector<NamedState> state() const;

  FlatBuffer& flat() { return flat_; }
  const FlatBuffer& flat() const { return flat_; }

 protected:
  struct GroupStep {
    double lr = 0, weight_decay_scale = 1, gradient_scale = 1;
    int64_t t = 1;  // the number of this step, from 1
  };
  struct Arena {
    std::string name;
    Tensor values;
  };
  virtual void update_range(FlatBuffer::Range range, const GroupStep& step) = 0;
  virtual std::vector<Arena> arenas() const { return {}; }

 private:
  std::string first_non_finite() const;

  FlatBuffer flat_;
  int64_t steps_ = 0;
};

}  // namespace gradus::optim
