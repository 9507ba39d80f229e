#include "sched/param_scheduler.h"

#include <algorithm>
#include <cmath>

#include "sched/schedule.h"
#include "sched/wsd.h"

namespace gradus::sched {
namespace {

void validate(const LearningRate& s) {
  detail::check_range("learning rate", s.max, s.min);
  detail::check_rate("learning rate", "init", s.init);
  check(s.init <= s.max, "learning rate: init, ", s.init, ", is above max, ", s.max);
  check(s.decay > 0, "learning rate: decay must be > 0 samples, got ", s.decay);
  check(s.warmup >= 0 && s.warmup < s.decay, "learning rate: warm-up must be ≥ 0 and end before ",
        "the decay does, got warm-up ", s.warmup, " and decay ", s.decay, " samples");
  name_of(s.style), name_of(s.tail_style);
  check(s.style != RateStyle::wsd || (s.tail > 0 && s.tail <= s.decay - s.warmup),
        "learning rate: the tail of wsd must be > 0 and fit between warm-up and end, ",
        s.decay - s.warmup, " samples, got ", s.tail);
}

void validate(const WeightDecay& s) {
  detail::check_range("weight decay", s.end, s.start);
  check(s.samples >= 0, "weight decay: the number of samples must be ≥ 0, got ", s.samples);
  name_of(s.style);
  check(s.style != IncrementStyle::constant || s.start == s.end,
        "weight decay: a constant one must start as it ends, got ", s.start, " and ", s.end,
        "; choose linear or cosine");
}

/// The share of max − min that is left, for w < n ≤ D.
double share(const LearningRate& s, int64_t n) {
  double r = double(n - s.warmup) / double(s.decay - s.warmup);
  if (s.style == RateStyle::linear) return 1 - r;
  if (s.style == RateStyle::cosine) return detail::half_cosine(r);
  int64_t past = n - (s.decay - s.tail);
  return tail_share(s.tail_style, double(std::max<int64_t>(past, 0)) / double(s.tail));
}

double rate(const LearningRate& s, int64_t n) {
  if (s.warmup > 0 && n <= s.warmup) return std::lerp(s.init, s.max, double(n) / double(s.warmup));
  if (s.style == RateStyle::constant) return s.max;
  if (n > s.decay) return s.min;
  if (s.style == RateStyle::inverse_sqrt) {
    auto at_least_one = [](int64_t x) { return double(std::max<int64_t>(x, 1)); };
    return std::max(s.min, s.max * std::sqrt(at_least_one(s.warmup) / at_least_one(n)));
  }
  return std::lerp(s.min, s.max, share(s, n));
}

double rate(const WeightDecay& s, int64_t n) {
  if (n >= s.samples) return s.end;
  double done = double(n) / double(s.samples);
  return std::lerp(s.start, s.end,
                   s.style == IncrementStyle::cosine ? detail::half_cosine(1 - done) : done);
}

/// One text for each field in which the two settings differ.
template <class Settings>
void differences(const char* of, const Settings& mine, const Settings& stored,
                 std::vector<std::string>& texts) {
  Settings::each_field(
      [&](const char* name, const auto& configured, const auto& other) {
        if (configured == other) return;
        std::ostringstream text;
        text.precision(17);
        text << of << ' ' << name << ": configured " << configured << ", stored " << other;
        texts.push_back(text.str());
      },
      mine, stored);
}

}  // namespace

ParamScheduler::ParamScheduler(const LearningRate& lr, const WeightDecay& decay)
    : state_{0, lr, decay} {
  validate(lr);
  validate(decay);
}

Rates ParamScheduler::at(int64_t n, const GroupRates& group) const {
  check(n >= 0, "ParamScheduler: the number of samples is negative, ", n);
  detail::check_rate("group", "the scale of the learning rate", group.lr_scale);
  detail::check_rate("group", "the scale of the weight decay", group.decay_scale);
  LearningRate lr = state_.lr;
  lr.max = group.max_lr.value_or(lr.max), lr.min = group.min_lr.value_or(lr.min);
  WeightDecay decay = state_.decay;
  decay.start = group.start_decay.value_or(decay.start);
  decay.end = group.end_decay.value_or(decay.end);
  validate(lr);
  validate(decay);
  return {group.lr_scale * rate(lr, n), group.decay_scale * rate(decay, n)};
}

void ParamScheduler::advance(int64_t samples) {
  check(samples >= 0, "ParamScheduler: an update of ", samples, " samples");
  state_.samples += samples;
}

std::vector<std::string> ParamScheduler::load(const State& stored, OnLoad mode) {
  check(stored.samples >= 0, "ParamScheduler: ", stored.samples, " samples stored");
  std::vector<std::string> texts;
  differences("learning rate", state_.lr, stored.lr, texts);
  differences("weight decay", state_.decay, stored.decay, texts);
  if (mode == OnLoad::must_match && !texts.empty()) {
    std::string all;
    for (const std::string& text : texts) all += "\n  " + text;
    fail(
        "the schedule differs from that of the checkpoint; to keep the configured one load with "
        "'override', to take the stored one with 'use checkpoint':",
        all);
  }
  if (mode == OnLoad::use_checkpoint) *this = ParamScheduler(stored.lr, stored.decay);
  state_.samples = stored.samples;
  return texts;
}

}  // namespace gradus::sched
