#pragma once
// A schedule says which rate the next update uses, as a pure function of n, the number of updates
// (or samples) completed so far: the first update uses η(0). It has no state: a resumed run asks
// for the same n and gets the same rate; a skipped step leaves n alone and repeats its rate.
//
//   Schedule lr = warmup(6e-4, 2000, cosine(6e-4, 6e-5, 600000));
//   for (int64_t n = 0; n < steps; ++n) step(lr(n));
//
// All of them are closed forms. A recursive form, η ← γ η, drifts and depends on who called it.
#include <cmath>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "core/check.h"

namespace gradus::sched {

/// A value that is called with n ≥ 0 and returns a rate. A number is a schedule that stays.
class Schedule {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): Schedule lr = 3e-4;
  Schedule(double rate) : Schedule([rate](int64_t) { return rate; }) {
    check(rate >= 0 && std::isfinite(rate), "constant: a finite rate ≥ 0 is needed, got ", rate);
  }
  template <class F>
  requires std::is_invocable_r_v<double, F, int64_t>
  // NOLINTNEXTLINE(google-explicit-constructor): any function of n is a schedule.
  Schedule(F f) : f_(std::move(f)) {}

  double operator()(int64_t n) const {
    check(n >= 0, "schedule: the number of completed updates is negative, ", n);
    return f_(n);
  }

 private:
  std::function<double(int64_t)> f_;
};

/// η(n) = rate.   ‾‾‾‾‾‾‾‾‾‾‾‾‾
inline Schedule constant(double rate) { return rate; }

namespace detail {

/// Errors on behalf of the schedule `name`, whose argument `what` is out of range.
inline void check_rate(const char* name, const char* what, double rate) {
  check(rate >= 0 && std::isfinite(rate), name, ": ", what, " must be finite and ≥ 0, got ", rate);
}
inline void check_range(const char* name, double max, double min) {
  check_rate(name, "the lowest rate", min);
  check_rate(name, "the highest rate", max);
  check(max >= min, name, ": the lowest rate, ", min, ", is above the highest, ", max);
}
inline void check_factor(const char* name, double gamma) {
  check(gamma > 0 && std::isfinite(gamma), name, ": γ must be finite and > 0, got ", gamma);
}
inline void check_steps(const char* name, const char* what, int64_t steps) {
  check(steps > 0, name, ": ", what, " must be > 0, got ", steps);
}

/// ½ (1 + cos πx): 1 at x = 0, falling smoothly to 0 at x = 1, both exactly.
inline double half_cosine(double x) { return 0.5 * (1 + std::cos(3.14159265358979323846 * x)); }

}  // namespace detail
}  // namespace gradus::sched
