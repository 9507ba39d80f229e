// Adam:  each parameter moves by its mean gradient over its root mean square gradient.
//
//   m ← β₁ m + (1 − β₁) g         m̂ = m/(1 − β₁ᵗ)          θ ← θ − η m̂/(√v̂ + ε)
//   v ← β₂ v + (1 − β₂) g²        v̂ = v/(1 − β₂ᵗ)
//
// m and v start at 0, so after t steps they hold only the share 1 − βᵗ of an average; m̂ and v̂ make up
// for that. At t = 1 the step is η g/(|g| + ε): about η, whatever the size of the gradient. ε stands
// outside the root, beside the corrected v̂.
//
// Weight decay inside g would be divided by √v̂ as well and all but vanish where gradients are large;
// decoupled, it multiplies θ by 1 − ηλ before the step.
//
// In one pass, with the corrections moved to where they cost nothing, step = η/(1 − β₁ᵗ) and
// root = 1/√(1 − β₂ᵗ):
//
//   θ ← θ (1 − ηλ) − step · m/(√v · root + ε)
#include "optim/adam.h"

#include "optim/adam_rule.h"

namespace gradus::optim {

Adam::Adam(std::vector<ParameterGroup> groups, AdamOptions o, const ArenaOptions& arena)
    : Optimizer(std::move(groups), arena),
      options(o),
      m_(flat().make_state()),
      v_(flat().make_state()) {}

void validate(const AdamOptions& o) {
  check(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1,
        "Adam: 0 ≤ β < 1 is needed, got ", o.beta1, " and ", o.beta2);
  check(o.epsilon > 0 && o.weight_decay >= 0, "Adam: ε > 0 and a weight decay ≥ 0 are needed, got ",
        o.epsilon, " and ", o.weight_decay);
}

void Adam::validate() const { optim::validate(options); }

void Adam::apply(const StepNumbers* numbers) {
  dispatch_masters(
      flat(), [&]<class W>() { fused_update<W>(flat(), AdamRule<W>(options), numbers, m_, v_); });
}

}  // namespace gradus::optim
