// Stochastic gradient descent:
//
//   g ← g + λθ                    weight decay
//   v ← μ v + (1 − d) g           momentum; v = g in the first step, without dampening
//   θ ← θ − η v                   or, Nesterov,  θ ← θ − η (g + μ v)
//
// For a small step L(θ − ηg) ≈ L − η‖g‖², so the loss falls. Momentum averages over 1/(1 − μ) steps:
// what points to and fro across a valley cancels, what points along it adds up.
#include "optim/sgd.h"

#include "optim/fused_update.h"

namespace gradus::optim {
namespace {

template <class W>
struct PlainRule {
  W scale{}, l2{}, lr{};

  GRADUS_HD void begin(const StepNumbers& n, const Segment& group) {
    scale = W(n.gradient_scale);
    l2 = W(group.weight_decay(n));
    lr = W(group.lr(n));
  }
  GRADUS_HD W gradient(W theta, W g) const { return fused(l2, theta, g * scale); }
  GRADUS_HD void operator()(W& theta, W g) const { theta = fused(-lr, gradient(theta, g), theta); }
};

template <class W>
struct MomentumRule : PlainRule<W> {
  W momentum, rest;
  bool nesterov;
  W share{};

  explicit MomentumRule(const SgdOptions& o)
      : momentum(W(o.momentum)), rest(W(1 - o.dampening)), nesterov(o.nesterov) {}

  GRADUS_HD void begin(const StepNumbers& n, const Segment& group) {
    PlainRule<W>::begin(n, group);
    share = n.updates == 1 ? W(1) : rest;  // v is 0 before the first step
  }
  GRADUS_HD void operator()(W& theta, W g, W& v) const {
    g = this->gradient(theta, g);
    v = fused(momentum, v, share * g);
    theta = fused(-this->lr, nesterov ? fused(momentum, v, g) : v, theta);
  }
};

}  // namespace

Sgd::Sgd(std::vector<ParameterGroup> groups, SgdOptions o, const ArenaOptions& arena)
    : Optimizer(std::move(groups), arena), options(o) {
  check(o.momentum >= 0 && o.momentum < 1 && o.dampening >= 0 && o.dampening <= 1 &&
            o.weight_decay >= 0,
        "Sgd: 0 ≤ μ < 1, 0 ≤ dampening ≤ 1 and a weight decay ≥ 0 are needed, got ", o.momentum,
        ", ", o.dampening, " and ", o.weight_decay);
  check(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
        "Sgd: Nesterov momentum needs μ > 0 and no dampening, got ", o.momentum, " and ",
        o.dampening);
  if (o.momentum > 0) v_ = flat().make_state();
}

std::vector<Optimizer::Arena> Sgd::arenas() const {
  if (!v_) return {};
  return {{"v", v_}};
}

void Sgd::apply(const StepNumbers* numbers) {
  dispatch_masters(flat(), [&]<class W>() {
    if (v_)
      fused_update<W>(flat(), MomentumRule<W>(options), numbers, v_);
    else
      fused_update<W>(flat(), PlainRule<W>(), numbers);
  });
}

}  // namespace gradus::optim
