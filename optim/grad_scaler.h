#pragma once
// The loss scale of a run in f16.
//
// f16 rounds what is smaller than 2⁻²⁵ ≈ 3e-8 to 0, and many gradients are. Backward is linear in its
// seed: begun with S instead of 1 it yields S times every gradient, which f16 can hold, and dividing
// the f32 sums by S afterwards costs nothing. The best S is the largest that does not overflow, and
// changes during a run, so it is searched for:
//
//   overflow      good = 0,  h ← h − 1;   h ≤ 0:  S ← max(S · backoff, minimum)
//   no overflow   good += 1; at the interval:  good = 0,  h = hysteresis,  S ← S · growth
//
// h, the overflows that are forgiven, returns with growth only: after the first two overflows each
// further one backs off at once. S is a power of two, so that scaling rounds nothing.
#include "core/check.h"
#include "core/device.h"

namespace gradus::optim {

struct GradScalerOptions {
  double initial = 0x1p32, minimum = 1;
  double growth = 2, backoff = 0.5;
  int64_t interval = 1000;  // updates without overflow after which S grows; 0: S stays as it is
  int64_t hysteresis = 2;   // the overflow that makes S back off, counted from the last growth

  static GradScalerOptions constant(double scale) {
    return {.initial = scale, .minimum = scale, .interval = 0};
  }
};

/// Plain numbers: it lives on the device, where an update is decided.
struct GradScaler {
  GradScalerOptions options{};
  double scale = options.initial;
  int64_t good = 0, hysteresis = options.hysteresis;
  float seed = float(scale), unused = 0;  // the scale, as backward wants it

  bool is_dynamic() const { return options.interval > 0; }

  /// What a checkpoint keeps.
  struct State {
    double scale = 1;
    int64_t good = 0, hysteresis = 0;
    bool operator==(const State&) const = default;
  };
  GRADUS_HD State state() const { return {scale, good, hysteresis}; }
  GRADUS_HD void restore(const State& s) {
    good = s.good, hysteresis = s.hysteresis;
    set(s.scale);
  }

  /// After a step. Returns false when S should have been lowered, but is at its minimum.
  GRADUS_HD bool update(bool overflow) {
    if (options.interval <= 0) return true;
    if (overflow) {
      good = 0;
      if (--hysteresis > 0) return true;
      if (scale <= options.minimum) return false;
      double lower = scale * options.backoff;
      set(lower > options.minimum ? lower : options.minimum);
    } else if (++good >= options.interval) {
      good = 0;
      hysteresis = options.hysteresis;
      if (scale * options.growth < 0x1p127) set(scale * options.growth);  // an f32 must hold it
    }
    return true;
  }

  GRADUS_HD void set(double s) { scale = s, seed = float(s); }
};

inline void validate(const GradScalerOptions& o) {
  check(o.minimum > 0 && o.initial >= o.minimum && o.initial < 0x1p127,
        "loss scale: 0 < minimum ≤ initial < 2¹²⁷ is needed, got minimum ", o.minimum,
        " and initial ", o.initial);
  check(o.growth >= 1 && o.backoff > 0 && o.backoff < 1,
        "loss scale: growth ≥ 1 and 0 < backoff < 1 are needed, got ", o.growth, " and ",
        o.backoff);
  check(o.interval >= 0 && o.hysteresis >= 1,
        "loss scale: interval ≥ 0 and hysteresis ≥ 1 are needed, got ", o.interval, " and ",
        o.hysteresis);
}

}  // namespace gradus::optim
