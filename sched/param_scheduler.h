#pragma once
// Learning rate and weight decay of a training run, in samples: a run resumed with another batch
// size continues on the same curve. n counts the samples of completed updates; a skipped update
// adds none.
//
//   learning rate                                        weight decay
//   max      ╱‾‾╲                                        end          ___
//           ╱    ╲     linear, cosine, inverse_sqrt                 ╱
//   init   ╱      ╲___ min       or wsd                  start ____╱
//             w      D                                             I
//
//   n ≤ w     init + (max − init) n/w                    n ≥ I     end
//   constant  max                                        else      start + c (end − start), ρ = n/I
//   n > D     min                                          linear  c = ρ
//   inverse_sqrt   max(min, max √(max(w, 1)/n))            cosine  c = ½ (1 + cos π(1 − ρ))
//   else      min + c (max − min),  r = (n − w)/(D − w)
//     linear  c = 1 − r                    cosine  c = ½ (1 + cos πr)
//     wsd     c = 1 up to D − Z, then a tail over the last Z samples (sched/wsd.h)
//
// The lines are tried in this order. Decay is small first, for fast early progress, and large late,
// against overfitting.
#include <optional>
#include <string>
#include <vector>

#include "sched/style.h"

namespace gradus::sched {

struct LearningRate {
  double init = 0, max = 0, min = 0;
  int64_t warmup = 0, decay = 0;  // w, D: samples; D is counted from the start
  RateStyle style = RateStyle::linear;
  int64_t tail = 0;  // Z, samples, for wsd
  Tail tail_style = Tail::linear;

  /// Calls f(name, field of each of `s`…): how settings are compared, printed and saved.
  template <class F, class... S>
  static void each_field(F&& f, S&... s) {
    f("init", s.init...), f("max", s.max...), f("min", s.min...), f("warmup", s.warmup...);
    f("decay", s.decay...), f("style", s.style...), f("tail", s.tail...);
    f("tail_style", s.tail_style...);
  }
};

struct WeightDecay {
  double start = 0, end = 0;
  int64_t samples = 0;  // I
  IncrementStyle style = IncrementStyle::constant;

  template <class F, class... S>
  static void each_field(F&& f, S&... s) {
    f("start", s.start...), f("end", s.end...), f("samples", s.samples...), f("style", s.style...);
  }
};

/// What a parameter group has of its own; the rest it shares with all groups.
struct GroupRates {
  std::optional<double> max_lr = {}, min_lr = {};
  double lr_scale = 1;
  std::optional<double> start_decay = {}, end_decay = {};
  double decay_scale = 1;  // 0: this group is not decayed
};

struct Rates {
  double lr, weight_decay;
};

/// Which settings hold after loading a checkpoint that was written with other ones.
enum class OnLoad {
  must_match,      // any difference is an error
  override,        // the configured ones
  use_checkpoint,  // the stored ones
};

class ParamScheduler {
 public:
  struct State {
    int64_t samples = 0;
    LearningRate lr{};
    WeightDecay decay{};
  };

  /// Error for a range that is negative or upside down, and for lengths that do not fit.
  ParamScheduler(const LearningRate& lr, const WeightDecay& decay);

  /// The rates of the update that follows `n` samples: a pure function.
  Rates at(int64_t n, const GroupRates& group = {}) const;

  /// The rates of the next update.
  Rates now(const GroupRates& group = {}) const { return at(state_.samples, group); }

  /// An update of `samples` was applied. Not called for a skipped one.
  void advance(int64_t samples);

  int64_t samples() const { return state_.samples; }
  const State& state() const { return state_; }

  /// Sets (never adds) the count of samples, and settles the settings by `mode`. Returns the
  /// settings that differed, one text each; they are the Error under must_match.
  std::vector<std::string> load(const State& stored, OnLoad mode = OnLoad::must_match);

 private:
  State state_;
};

}  // namespace gradus::sched
