#pragma once
// A straight line from one rate to another, which then stays:
//
//   η(n) = from + (to − from) min(n, N)/N                from ‾╲
//                                                              ╲______ to
// PyTorch's LinearLR (η₀; f₀, f₁, N) is linear(η₀ f₀, η₀ f₁, N).   N
#include <algorithm>

#include "sched/schedule.h"

namespace gradus::sched {

/// Line from `from` at n = 0 to `to` at n = `steps`, up or down. Error unless steps > 0.
inline Schedule linear(double from, double to, int64_t steps) {
  detail::check_rate("linear", "the first rate", from);
  detail::check_rate("linear", "the last rate", to);
  detail::check_steps("linear", "the number of steps", steps);
  return [=](int64_t n) { return std::lerp(from, to, double(std::min(n, steps)) / double(steps)); };
}

}  // namespace gradus::sched
