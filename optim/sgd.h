#pragma once
#include "optim/optimizer.h"

namespace gradus::optim {

struct SgdOptions {
  double momentum = 0;      // μ: how much of the velocity stays
  double dampening = 0;     // d: how much of each new gradient is left out
  bool nesterov = false;    // look one step of momentum ahead; needs μ > 0, d = 0
  double weight_decay = 0;  // λ, through the gradient (L2)
};

/// Stochastic gradient descent; the rule stands in sgd.cu.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(std::vector<ParameterGroup> groups, SgdOptions options = {},
               const ArenaOptions& arena = {});
  explicit Sgd(nn::Module& module, SgdOptions options = {})
      : Sgd(default_groups(module), options) {}

  double weight_decay() const override { return options.weight_decay; }

  const SgdOptions options;

 private:
  void apply(const StepNumbers* numbers) override;
  std::vector<Arena> arenas() const override;

  Tensor v_;  // undefined without momentum
};

}  // namespace gradus::optim
