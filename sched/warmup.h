#pragma once
// Warm-up: a line up to the peak, because the optimizer's estimates of the moments are poor at
// first; then another schedule, counting from its own 0:
//
//   η(n) = from + (peak − from) n/w      for n < w          peak   ╱‾‾╲
//          then(n − w)                   for n ≥ w               ╱     ╲  then
//                                                          from ╱   w
// Customary for language models: w of 1 to 3 % of all steps. With from = 0 the first update moves
// nothing.
#include "sched/linear.h"
#include "sched/sequence.h"

namespace gradus::sched {

/// `steps` updates of warm-up (0: none), then `then`, which must begin at `peak`: a jump between
/// them is an error.
inline Schedule warmup(double peak, int64_t steps, Schedule then, double from = 0) {
  detail::check_range("warmup", peak, from);
  check(steps >= 0, "warmup: the number of steps must be ≥ 0, got ", steps);
  check(std::abs(then(0) - peak) <= 1e-12 * peak, "warmup: rises to ", peak,
        ", but the schedule after it begins at ", then(0));
  return steps == 0 ? then : sequence({linear(from, peak, steps), then}, {steps});
}

}  // namespace gradus::sched
