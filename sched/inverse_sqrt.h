#pragma once
// The decay of the first transformer [Vaswani et al. 2017], without an end known beforehand:
//
//   η(n) = max(floor, peak √(w/(w + n)))                        ╲
//                                                                ‾--__
// After a warm-up of w steps this is peak √w / √(all steps):          ‾‾‾‾----
//   warmup(peak, w, inverse_sqrt(peak, w))
#include <algorithm>

#include "sched/schedule.h"

namespace gradus::sched {

/// From `peak` at n = 0; half of it after another 3 `steps`; never below `floor`.
inline Schedule inverse_sqrt(double peak, int64_t steps, double floor = 0) {
  detail::check_range("inverse_sqrt", peak, floor);
  detail::check_steps("inverse_sqrt", "the number of warm-up steps", steps);
  return [=](int64_t n) {
    return std::max(floor, peak * std::sqrt(double(steps) / (double(steps) + double(n))));
  };
}

}  // namespace gradus::sched
