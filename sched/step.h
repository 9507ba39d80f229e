#pragma once
// Rates that fall by a factor γ: at every s-th step, at given steps, at each step.
//
//   step          η₀ γ^⌊n/s⌋                ‾‾‾|___
//                                              s  |___
//                                                2s
//   multi_step    η₀ γ^#{milestones ≤ n}    ‾‾|______
//                                            m₁     |__
//                                                  m₂
//   exponential   η₀ γⁿ                     ╲
//                                            ╲_
//                                              ‾‾----
//
// PyTorch's StepLR, MultiStepLR and ExponentialLR.
#include <algorithm>
#include <vector>

#include "sched/schedule.h"

namespace gradus::sched {

/// Multiplied by `gamma` once every `every` steps.
inline Schedule step(double rate, int64_t every, double gamma) {
  detail::check_rate("step", "the first rate", rate);
  detail::check_steps("step", "the number of steps", every);
  detail::check_factor("step", gamma);
  return [=](int64_t n) { return rate * std::pow(gamma, n / every); };
}

/// Multiplied by `gamma` at each of the `milestones`, which must not decrease.
inline Schedule multi_step(double rate, std::vector<int64_t> milestones, double gamma) {
  detail::check_rate("multi_step", "the first rate", rate);
  detail::check_factor("multi_step", gamma);
  int64_t last = 0;
  for (int64_t m : milestones) {
    check(m >= last, "multi_step: milestones must be ≥ 0 and not decrease, got ", m, " after ",
          last);
    last = m;
  }
  return [=, milestones = std::move(milestones)](int64_t n) {
    auto next = std::upper_bound(milestones.begin(), milestones.end(), n);
    return rate * std::pow(gamma, next - milestones.begin());
  };
}

/// Multiplied by `gamma` at every step.
inline Schedule exponential(double rate, double gamma) {
  detail::check_rate("exponential", "the first rate", rate);
  detail::check_factor("exponential", gamma);
  return [=](int64_t n) { return rate * std::pow(gamma, n); };
}

}  // namespace gradus::sched
