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
  W scale, l2, lr;
  GRADUS_HD void operator()(W& theta, W g) const {
    theta = fused(-lr, fused(l2, theta, g * scale), theta);
  }
};

template <class W>
struct MomentumRule {
  W scale, l2, lr, momentum, share;
  bool nesterov;
  GRADUS_HD void operator()(W& theta, W g, W& v) const {
    g = fused(l2, theta, g * scale);
    v = fused(momentum, v, share * g);
    theta = fused(-lr, nesterov ? fused(momentum, v, g) : v, theta);
  }
};

}  // namespace

Sgd::Sgd(std::vector<ParameterGroup> groups, SgdOptions o)
    : Optimizer(std::move(groups)), options(o) {
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

void Sgd::update_range(FlatBuffer::Range range, const GroupStep& s) {
  double lambda = options.weight_decay * s.weight_decay_scale;
  dispatch_masters(flat(), [&]<class W>() {
    W scale = W(s.gradient_scale), l2 = W(lambda), lr = W(s.lr);
    if (!v_) return fused_update<W>(flat(), range, PlainRule<W>{scale, l2, lr});
    W share = W(s.t == 1 ? 1 : 1 - options.dampening);  // v is 0 before the first step
    MomentumRule<W> rule{scale, l2, lr, W(options.momentum), share, options.nesterov};
    fused_update<W>(flat(), range, rule, v_);
  });
}

}  // namespace gradus::optim
