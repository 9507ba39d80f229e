#pragma once
#include "optim/optimizer.h"

namespace gradus::optim {

enum class Decay {
  decoupled,         // θ ← θ (1 − ηλ), beside the step: AdamW
  through_gradient,  // g ← g + λθ, a penalty in the loss: Adam with L2
};

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;  // memory of the mean and of the square: 1/(1 − β) steps
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // λ
  Decay decay = Decay::decoupled;
};

/// Adam [Kingma & Ba 2015] and AdamW [Loshchilov & Hutter 2019]; the rule stands in adam.cu.
class Adam final : public Optimizer {
 public:
  explicit Adam(std::vector<ParameterGroup> groups, AdamOptions options = {},
                const ArenaOptions& arena = {});
  explicit Adam(nn::Module& module, AdamOptions options = {})
      : Adam(default_groups(module), options) {}

  double weight_decay() const override { return options.weight_decay; }

  AdamOptions options;  // may change between steps

 private:
  void apply(const StepNumbers* numbers) override;
  Betas betas() const override { return {options.beta1, options.beta2}; }
  void validate() const override;
  std::vector<Arena> arenas() const override { return {{"m", m_}, {"v", v_}}; }

  Tensor m_, v_;
};

}  // namespace gradus::optim
