#pragma once
// Adam's rule for one element, for kernels; what it means stands in adam.cu.
#include "optim/adam.h"
#include "optim/fused_update.h"

namespace gradus::optim {

template <class W>
struct AdamRule {
  W beta1, rest1, beta2, rest2, epsilon;
  bool decoupled;
  W scale{}, l2{}, decay{}, step{}, root{};

  explicit AdamRule(const AdamOptions& o)
      : beta1(W(o.beta1)),
        rest1(W(1 - o.beta1)),
        beta2(W(o.beta2)),
        rest2(W(1 - o.beta2)),
        epsilon(W(o.epsilon)),
        decoupled(o.decay == Decay::decoupled) {}

  GRADUS_HD void begin(const StepNumbers& n, const Segment& group) {
    const double lr = group.lr(n), lambda = group.weight_decay(n);
    scale = W(n.gradient_scale);
    l2 = W(decoupled ? 0 : lambda);
    decay = W(decoupled ? 1 - lr * lambda : 1);
    step = W(lr / n.rest1);
    root = W(1 / std::sqrt(n.rest2));
  }
  GRADUS_HD void operator()(W& theta, W g, W& m, W& v) const {
    g = fused(l2, theta, g * scale);
    m = fused(beta1, m, rest1 * g);
    v = fused(beta2, v, rest2 * g * g);
    theta = fused(-step, m / fused(std::sqrt(v), root, epsilon), theta * decay);
  }
};

/// Error unless the options make sense.
void validate(const AdamOptions& options);

}  // namespace gradus::optim
