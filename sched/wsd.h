#pragma once
// Warm-up, stable, decay [Hu et al. 2024]: the rate stays at its peak until training is to end, and
// only then falls; so the end need not be known at the start. After a warm-up:
//
//   η(n) = peak                               for n ≤ S         peak ‾‾‾‾‾‾‾‾‾‾╲
//          floor + (peak − floor) c(q)        q = (n − S)/Z                     ╲___ floor
//                                                                            S  S+Z
// with one of four tails c, from c(0) = 1 to c(1) = 0:
//
//   linear 1 − q      cosine ½ (1 + cos πq)      exponential 2·½^q − 1      minus_sqrt 1 − √q
#include <algorithm>

#include "sched/schedule.h"
#include "sched/style.h"

namespace gradus::sched {

/// The share c(q) of the height that is left after the share q ∈ [0, 1] of the tail.
inline double tail_share(Tail tail, double q) {
  switch (tail) {
    case Tail::linear:
      return 1 - q;
    case Tail::cosine:
      return detail::half_cosine(q);
    case Tail::exponential:
      return 2 * std::pow(0.5, q) - 1;
    case Tail::minus_sqrt:
      return 1 - std::sqrt(q);
  }
  fail("unknown tail, number ", int(tail));
}

/// `peak` for `stable` steps, then down to `floor` within `decay` steps, where it stays.
inline Schedule wsd(double peak, double floor, int64_t stable, int64_t decay,
                    Tail tail = Tail::linear) {
  detail::check_range("wsd", peak, floor);
  check(stable >= 0, "wsd: the number of stable steps must be ≥ 0, got ", stable);
  detail::check_steps("wsd", "the number of decay steps", decay);
  name_of(tail);  // an unknown shape is an error now, not at the end of the training
  return [=](int64_t n) {
    double q = double(std::clamp<int64_t>(n - stable, 0, decay)) / double(decay);
    return std::lerp(floor, peak, tail_share(tail, q));
  };
}

}  // namespace gradus::sched
