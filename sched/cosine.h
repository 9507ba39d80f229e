#pragma once
// Half a cosine wave: flat at both ends, steepest in the middle. With c(x) = ½ (1 + cos πx):
//
//   cosine             to + (from − to) c(min(n, N)/N)          ‾╲         stays at `to`
//                                                                 ╲_____
//   cosine_annealing   min + (max − min) c(n/T)                 ‾╲   ╱‾╲   periodic: rises again
//                                                                 ╲_╱   ╲  after T
//   cosine_restarts    min + (max − min) c(n'/Tᵢ)               ‾╲|‾‾╲     n' counted in cycle i,
//                      T₀, T₀k, T₀k², … long                      ╲   ╲__  back to max at its start
//
// PyTorch's CosineAnnealingLR is the second, its CosineAnnealingWarmRestarts the third
// [Loshchilov & Hutter 2017].
#include <algorithm>
#include <limits>

#include "sched/schedule.h"

namespace gradus::sched {

/// From `from` at n = 0 to `to` at n = `steps`, where it stays.
inline Schedule cosine(double from, double to, int64_t steps) {
  detail::check_rate("cosine", "the first rate", from);
  detail::check_rate("cosine", "the last rate", to);
  detail::check_steps("cosine", "the number of steps", steps);
  return [=](int64_t n) {
    return std::lerp(to, from, detail::half_cosine(double(std::min(n, steps)) / double(steps)));
  };
}

/// From `max` at n = 0 to `min` at n = `steps`, back to `max` at 2 `steps`, and so on.
inline Schedule cosine_annealing(double max, double min, int64_t steps) {
  detail::check_range("cosine_annealing", max, min);
  detail::check_steps("cosine_annealing", "the number of steps", steps);
  return [=](int64_t n) {  // position in the wave first: the cosine of a large angle is imprecise
    double turn = (n / steps) % 2 ? 1 : 0;
    return std::lerp(min, max, detail::half_cosine(turn + double(n % steps) / double(steps)));
  };
}

/// From `max` towards `min` in cycles: the first has `steps` steps, each next one `times` as many.
inline Schedule cosine_restarts(double max, double min, int64_t steps, int64_t times = 1) {
  detail::check_range("cosine_restarts", max, min);
  detail::check_steps("cosine_restarts", "the length of the first cycle", steps);
  detail::check_steps("cosine_restarts", "the multiplier of the length", times);
  return [=](int64_t n) {
    int64_t length = steps;
    if (times == 1) n %= length;
    while (n >= length) {  // integers, not a logarithm, which may miss the first step of a cycle
      n -= length;
      length = length > std::numeric_limits<int64_t>::max() / times
                   ? std::numeric_limits<int64_t>::max()
                   : length * times;
    }
    return std::lerp(min, max, detail::half_cosine(double(n) / double(length)));
  };
}

}  // namespace gradus::sched
