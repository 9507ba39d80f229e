#include "sched/param_scheduler.h"

#include <cmath>

#include "tests/sched/digits.h"

namespace gradus::sched {
namespace {

LearningRate rate(RateStyle style, Tail tail = Tail::linear) {
  return {.init = 0.01,
          .max = 0.1,
          .min = 0.001,
          .warmup = 100,
          .decay = 1000,
          .style = style,
          .tail = 200,
          .tail_style = tail};
}

ParamScheduler with(const LearningRate& lr) { return ParamScheduler(lr, {}); }
ParamScheduler with(const WeightDecay& decay) { return ParamScheduler({.decay = 1}, decay); }

const std::vector<LearningRate> kRates = {rate(RateStyle::constant),
                                          rate(RateStyle::linear),
                                          rate(RateStyle::cosine),
                                          rate(RateStyle::inverse_sqrt),
                                          rate(RateStyle::wsd),
                                          rate(RateStyle::wsd, Tail::cosine),
                                          rate(RateStyle::wsd, Tail::exponential),
                                          rate(RateStyle::wsd, Tail::minus_sqrt)};
const std::vector<WeightDecay> kDecays = {
    {.start = 0.1, .end = 0.1, .samples = 1000, .style = IncrementStyle::constant},
    {.start = 0.01, .end = 0.1, .samples = 1000, .style = IncrementStyle::linear},
    {.start = 0, .end = 0.1, .samples = 1000, .style = IncrementStyle::cosine}};

TEST(ParamScheduler, TableOfLearningRates) {
  const RateStyle styles[] = {RateStyle::constant, RateStyle::linear, RateStyle::cosine,
                              RateStyle::inverse_sqrt};
  const struct {
    int64_t n;
    const char* rates[4];
  } table[] = {
      {0, {"0.01", "0.01", "0.01", "0.01"}},
      {1, {"0.0109", "0.0109", "0.0109", "0.0109"}},
      {50, {"0.055", "0.055", "0.055", "0.055"}},
      {99, {"0.0991", "0.0991", "0.0991", "0.0991"}},
      {100, {"0.1", "0.1", "0.1", "0.1"}},
      {101, {"0.1", "0.09989", "0.099999698", "0.099503719"}},
      {200, {"0.1", "0.089", "0.097014785", "0.070710678"}},
      {500, {"0.1", "0.056", "0.059095585", "0.044721360"}},
      {550, {"0.1", "0.0505", "0.0505", "0.042640143"}},
      {750, {"0.1", "0.0285", "0.018682013", "0.036514837"}},
      {999, {"0.1", "0.00111", "0.0010003016", "0.031638600"}},
      {1000, {"0.1", "0.001", "0.001", "0.031622777"}},
      {1001, {"0.1", "0.001", "0.001", "0.001"}},  // the inverse root jumps to min at the end
  };
  for (int s = 0; s < 4; ++s)
    for (const auto& row : table)
      EXPECT_TRUE(rounds_to(with(rate(styles[s])).at(row.n).lr, row.rates[s]))
          << styles[s] << " at " << row.n;
}

TEST(ParamScheduler, TableOfWsdTails) {
  const Tail tails[] = {Tail::linear, Tail::cosine, Tail::exponential, Tail::minus_sqrt};
  const struct {
    int64_t n;
    const char* rates[4];
  } table[] = {
      {100, {"0.1", "0.1", "0.1", "0.1"}},
      {101, {"0.1", "0.1", "0.1", "0.1"}},
      {500, {"0.1", "0.1", "0.1", "0.1"}},
      {800, {"0.1", "0.1", "0.1", "0.1"}},
      {801, {"0.099505", "0.099993893", "0.099314972", "0.092999643"}},
      {850, {"0.07525", "0.085501786", "0.068497490", "0.0505"}},
      {900, {"0.0505", "0.0505", "0.042007143", "0.029996429"}},
      {950, {"0.02575", "0.015498214", "0.019731504", "0.014263485"}},
      {999, {"0.001495", "0.0010061067", "0.0013437031", "0.0012478102"}},
      {1000, {"0.001", "0.001", "0.001", "0.001"}},
      {1001, {"0.001", "0.001", "0.001", "0.001"}},
      {5000, {"0.001", "0.001", "0.001", "0.001"}},
  };
  for (int t = 0; t < 4; ++t)
    for (const auto& row : table)
      EXPECT_TRUE(rounds_to(with(rate(RateStyle::wsd, tails[t])).at(row.n).lr, row.rates[t]))
          << tails[t] << " at " << row.n;
}

TEST(ParamScheduler, WithoutWarmup) {
  auto lr = [](RateStyle style, int64_t n) {
    LearningRate settings = rate(style);
    settings.warmup = 0;
    return with(settings).at(n).lr;
  };
  EXPECT_TRUE(rounds_to(lr(RateStyle::linear, 1), "0.099901"));
  EXPECT_TRUE(rounds_to(lr(RateStyle::linear, 100), "0.0901"));
  EXPECT_TRUE(rounds_to(lr(RateStyle::cosine, 1), "0.099999756"));
  EXPECT_TRUE(rounds_to(lr(RateStyle::cosine, 100), "0.097577298"));
  EXPECT_TRUE(rounds_to(lr(RateStyle::inverse_sqrt, 0), "0.1"));
  EXPECT_TRUE(rounds_to(lr(RateStyle::inverse_sqrt, 2), "0.070710678"));
  EXPECT_TRUE(rounds_to(lr(RateStyle::inverse_sqrt, 4), "0.05"));
  EXPECT_TRUE(rounds_to(lr(RateStyle::inverse_sqrt, 100), "0.01"));
  EXPECT_TRUE(rounds_to(lr(RateStyle::inverse_sqrt, 1000), "0.0031622777"));
  for (RateStyle style : {RateStyle::constant, RateStyle::linear, RateStyle::cosine})
    EXPECT_EQ(lr(style, 0), 0.1);
}

TEST(ParamScheduler, TableOfWeightDecays) {
  const int64_t at[] = {1, 100, 250, 500, 750, 999, 1000, 1001};
  const char* line[] = {"0.0001", "0.01", "0.025", "0.05", "0.075", "0.0999", "0.1", "0.1"};
  const char* wave[] = {"2.46739907e-7", "0.00244717419", "0.0146446609", "0.05",
                        "0.0853553391",  "0.0999997533",  "0.1",          "0.1"};
  const WeightDecay linear{
      .start = 0, .end = 0.1, .samples = 1000, .style = IncrementStyle::linear};
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(rounds_to(with(linear).at(at[i]).weight_decay, line[i])) << at[i];
    EXPECT_TRUE(rounds_to(with(kDecays[2]).at(at[i]).weight_decay, wave[i])) << at[i];
  }
  WeightDecay higher = kDecays[1];
  EXPECT_TRUE(rounds_to(with(higher).at(100).weight_decay, "0.019"));
  EXPECT_TRUE(rounds_to(with(higher).at(250).weight_decay, "0.0325"));
  EXPECT_TRUE(rounds_to(with(higher).at(500).weight_decay, "0.055"));
  higher.style = IncrementStyle::cosine;
  EXPECT_TRUE(rounds_to(with(higher).at(100).weight_decay, "0.0122024568"));
  EXPECT_TRUE(rounds_to(with(higher).at(250).weight_decay, "0.0231801948"));
  EXPECT_TRUE(rounds_to(with(higher).at(500).weight_decay, "0.055"));
  for (int64_t n : {0, 1, 999, 5000}) EXPECT_EQ(with(kDecays[0]).at(n).weight_decay, 0.1);
}

TEST(ParamScheduler, ContinuousAtTheEndOfWarmupAndWithinBounds) {
  for (const LearningRate& settings : kRates) {
    ParamScheduler scheduler = with(settings);
    EXPECT_EQ(scheduler.at(0).lr, settings.init);
    EXPECT_EQ(scheduler.at(settings.warmup).lr, settings.max);
    // One sample after the peak the steepest of them, the inverse root, has lost 1/(2w) of it.
    EXPECT_NEAR(scheduler.at(settings.warmup + 1).lr, settings.max, settings.max / 199);
    for (int64_t n = settings.warmup; n < 2000; ++n) {
      EXPECT_GE(scheduler.at(n).lr, settings.min) << settings.style << ' ' << n;
      EXPECT_LE(scheduler.at(n).lr, settings.max) << settings.style << ' ' << n;
      EXPECT_LE(scheduler.at(n + 1).lr, scheduler.at(n).lr) << settings.style << ' ' << n;
    }
  }
}

TEST(ParamScheduler, O16_O17_ResumeAtEveryStepGivesTheUninterruptedRun) {
  const int64_t batch = 7;
  for (const LearningRate& lr : kRates)
    for (const WeightDecay& decay : kDecays) {
      ParamScheduler whole(lr, decay);
      while (whole.samples() < 1200) {
        ParamScheduler resumed(lr, decay);
        resumed.advance(3 * batch);  // a count that must be replaced, not added to
        EXPECT_TRUE(resumed.load(whole.state()).empty());
        ParamScheduler on = whole;
        for (int k = 0; k < 4; ++k) {
          EXPECT_EQ(resumed.samples(), on.samples());
          EXPECT_EQ(resumed.now().lr, on.now().lr);
          EXPECT_EQ(resumed.now().weight_decay, on.now().weight_decay);
          resumed.advance(batch), on.advance(batch);
        }
        whole.advance(batch);
      }
    }
}

TEST(ParamScheduler, O18_CountsAre64BitsWide) {
  LearningRate settings{.max = 1, .decay = int64_t(1) << 40};
  ParamScheduler scheduler = with(settings);
  for (int i = 0; i < 4; ++i) scheduler.advance(16777217);
  EXPECT_EQ(scheduler.samples(), 67108868);
  EXPECT_EQ(scheduler.now().lr, 1 - 67108868 * 0x1p-40);
}

TEST(ParamScheduler, GroupsHaveTheirOwnRange) {
  ParamScheduler scheduler(rate(RateStyle::linear), kDecays[1]);
  GroupRates embedding{.max_lr = 0.05, .min_lr = 0.005, .lr_scale = 0.5};
  EXPECT_NEAR(scheduler.at(50, embedding).lr, 0.5 * (0.01 + 0.04 * 0.5), 1e-16);  // init is shared
  EXPECT_NEAR(scheduler.at(550, embedding).lr, 0.5 * (0.005 + 0.045 * 0.5), 1e-16);
  EXPECT_EQ(scheduler.at(2000, embedding).lr, 0.5 * 0.005);
  EXPECT_EQ(scheduler.at(500, embedding).weight_decay, scheduler.at(500).weight_decay);
  EXPECT_EQ(scheduler.at(500, {.decay_scale = 0}).weight_decay, 0);
  GroupRates decayed{.start_decay = 0.2, .end_decay = 0.4, .decay_scale = 2};
  EXPECT_NEAR(scheduler.at(500, decayed).weight_decay, 0.6, 1e-15);
  EXPECT_EQ(scheduler.at(500, decayed).lr, scheduler.at(500).lr);
  EXPECT_THROW(scheduler.at(0, {.min_lr = 0.2}), Error);
  EXPECT_THROW(scheduler.at(0, {.max_lr = 0.005}), Error);  // below init
  EXPECT_THROW(scheduler.at(0, {.lr_scale = -1}), Error);
  EXPECT_THROW(scheduler.at(0, {.start_decay = 0.5}), Error);  // above end
}

template <class Change>
void expect_rate_error(Change change, const std::string& part) {
  LearningRate settings = rate(RateStyle::wsd);
  change(settings);
  try {
    with(settings);
    ADD_FAILURE() << "passed: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(ParamScheduler, WrongSettingsAreErrors) {
  using L = LearningRate;
  expect_rate_error([](L& s) { s.min = -0.001; }, "lowest rate must be finite and ≥ 0, got -0.001");
  expect_rate_error([](L& s) { s.min = 0.2; }, "the lowest rate, 0.2, is above the highest, 0.1");
  expect_rate_error([](L& s) { s.init = 0.2; }, "init, 0.2, is above max, 0.1");
  expect_rate_error([](L& s) { s.init = -1; }, "init must be");
  expect_rate_error([](L& s) { s.max = NAN; }, "highest rate must be finite");
  expect_rate_error([](L& s) { s.decay = 0; }, "decay must be > 0 samples, got 0");
  expect_rate_error([](L& s) { s.warmup = 1000; }, "got warm-up 1000 and decay 1000");
  expect_rate_error([](L& s) { s.warmup = -1; }, "got warm-up -1");
  expect_rate_error([](L& s) { s.tail = 0; }, "tail of wsd must be > 0");
  expect_rate_error([](L& s) { s.tail = 901; }, "900 samples, got 901");
  expect_rate_error([](L& s) { s.style = RateStyle(9); }, "unknown learning-rate style, number 9");
  EXPECT_NO_THROW(with(LearningRate{.max = 0.1, .warmup = 100, .decay = 1000}));  // no tail needed

  EXPECT_THROW(with(WeightDecay{.start = -0.1, .end = 0.1}), Error);
  EXPECT_THROW(with(WeightDecay{.start = 0.2, .end = 0.1, .style = IncrementStyle::linear}), Error);
  EXPECT_THROW(with(WeightDecay{.start = 0, .end = 0.1}), Error);  // constant, but rises
  EXPECT_THROW(with(WeightDecay{.samples = -1}), Error);
  EXPECT_THROW(with(rate(RateStyle::linear)).at(-1), Error);
  EXPECT_THROW(with(rate(RateStyle::linear)).advance(-1), Error);
}

TEST(ParamScheduler, LoadSettlesEverySetting) {
  ParamScheduler trained(rate(RateStyle::linear), kDecays[1]);
  trained.advance(300);
  LearningRate other = rate(RateStyle::cosine);
  other.max = 0.2;
  const ParamScheduler configured(other, kDecays[2]);

  ParamScheduler scheduler = configured;
  try {
    scheduler.load(trained.state(), OnLoad::must_match);
    FAIL() << "differences passed";
  } catch (const Error& e) {
    std::string text = e.what();
    for (const char* part : {"learning rate style: configured cosine, stored linear",
                             "learning rate max: configured 0.2", "stored 0.1",
                             "weight decay start: configured 0, stored 0.01",
                             "weight decay style: configured cosine, stored linear"})
      EXPECT_NE(text.find(part), text.npos) << part << " is missing in " << text;
    EXPECT_EQ(text.find("warmup"), text.npos) << "equal settings are not named: " << text;
  }
  EXPECT_EQ(scheduler.samples(), 0);  // untouched

  EXPECT_EQ(scheduler.load(trained.state(), OnLoad::override).size(), 4u);
  EXPECT_EQ(scheduler.samples(), 300);
  EXPECT_EQ(scheduler.now().lr, configured.at(300).lr);
  EXPECT_EQ(scheduler.now().weight_decay, configured.at(300).weight_decay);

  scheduler = configured;
  EXPECT_EQ(scheduler.load(trained.state(), OnLoad::use_checkpoint).size(), 4u);
  EXPECT_EQ(scheduler.now().lr, trained.now().lr);
  EXPECT_EQ(scheduler.now().weight_decay, trained.now().weight_decay);
  EXPECT_TRUE(scheduler.load(trained.state()).empty());  // now they match
}

// Each field, changed alone, is noticed: none is missing from each_field.
TEST(ParamScheduler, LoadNoticesEveryField) {
  const LearningRate lr = rate(RateStyle::wsd);
  const WeightDecay decay = kDecays[1];
  auto differences = [&](auto change) {
    ParamScheduler::State stored{0, lr, decay};
    change(stored);
    return ParamScheduler(lr, decay).load(stored, OnLoad::override).size();
  };
  using S = ParamScheduler::State;
  EXPECT_EQ(differences([](S&) {}), 0u);
  EXPECT_EQ(differences([](S& s) { s.lr.init = 0.02; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.lr.max = 0.2; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.lr.min = 0.002; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.lr.warmup = 101; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.lr.decay = 1001; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.lr.style = RateStyle::linear; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.lr.tail = 100; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.lr.tail_style = Tail::cosine; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.decay.start = 0; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.decay.end = 1; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.decay.samples = 5; }), 1u);
  EXPECT_EQ(differences([](S& s) { s.decay.style = IncrementStyle::cosine; }), 1u);
}

}  // namespace
}  // namespace gradus::sched
