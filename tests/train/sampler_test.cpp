#include "train/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

// p = ½, ¼, ⅛, ⅛ for the tokens 2, 0, 1, 3.
const std::vector<float> kLogits{std::log(2.f), std::log(1.f), std::log(4.f), std::log(1.f)};

// How often each token comes up when u runs over the midpoints of `n` equal parts of [0, 1).
std::vector<int> counts(const std::vector<float>& logits, const Sampling& s, int n) {
  std::vector<int> count(logits.size(), 0);
  for (int i = 0; i < n; ++i) ++count.at(size_t(sample_token(logits, s, (i + 0.5) / n)));
  return count;
}

TEST(Sampler, FollowsTheProbabilities) {
  EXPECT_EQ(counts(kLogits, {}, 800), (std::vector<int>{200, 100, 400, 100}));
}

// Temperature ½ squares the weights: 16, 4, 1, 1 of 22. 2 takes their roots: 2, √2, 1, 1.
TEST(Sampler, TemperatureIsAPowerOfTheWeights) {
  EXPECT_EQ(counts(kLogits, {.temperature = 0.5}, 2200), (std::vector<int>{400, 100, 1600, 100}));
  const auto warm = counts(kLogits, {.temperature = 2}, 10000);
  EXPECT_NEAR(warm[0], 10000 * std::sqrt(2) / (4 + std::sqrt(2)), 1.5);
  EXPECT_NEAR(warm[2], 20000 / (4 + std::sqrt(2)), 1.5);
}

TEST(Sampler, TemperatureZeroTakesTheLargestAndTheLowestIndexOfEquals) {
  for (double u : {0.0, 0.5, 0.999}) {
    EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, u), 2);
    EXPECT_EQ(sample_token({1, 3, 3, 2}, {.temperature = 0}, u), 1);
  }
}

TEST(Sampler, ATinyTemperatureIsNotANan) {
  EXPECT_EQ(sample_token({-5000, 1e4f, 9999, 0}, {.temperature = 1e-300}, 0.9), 1);
}

TEST(Sampler, TopKKeepsTheLargest) {
  EXPECT_EQ(counts(kLogits, {.top_k = 1}, 60), (std::vector<int>{0, 0, 60, 0}));
  EXPECT_EQ(counts(kLogits, {.top_k = 2}, 60), (std::vector<int>{20, 0, 40, 0}));
  EXPECT_EQ(counts(kLogits, {.top_k = 3}, 70), (std::vector<int>{20, 10, 40, 0}));  // 1 before 3
  EXPECT_EQ(counts(kLogits, {.top_k = 99}, 80), counts(kLogits, {}, 80));
}

TEST(Sampler, TopPKeepsTheFewestThatHoldTheShare) {
  EXPECT_EQ(counts(kLogits, {.top_p = 1e-9}, 60), (std::vector<int>{0, 0, 60, 0}));
  EXPECT_EQ(counts(kLogits, {.top_p = 0.49}, 60), (std::vector<int>{0, 0, 60, 0}));
  EXPECT_EQ(counts(kLogits, {.top_p = 0.51}, 60), (std::vector<int>{20, 0, 40, 0}));
  EXPECT_EQ(counts(kLogits, {.top_p = 0.74}, 60), (std::vector<int>{20, 0, 40, 0}));
  EXPECT_EQ(counts(kLogits, {.top_p = 0.76}, 70), (std::vector<int>{20, 10, 40, 0}));
}

// After top-k = 3 the shares are 4/7, 2/7, 1/7: 0.58 of what is left needs two tokens.
TEST(Sampler, TopPIsAShareOfWhatTopKLeft) {
  EXPECT_EQ(counts(kLogits, {.top_k = 3, .top_p = 0.56}, 60), (std::vector<int>{0, 0, 60, 0}));
  EXPECT_EQ(counts(kLogits, {.top_k = 3, .top_p = 0.58}, 60), (std::vector<int>{20, 0, 40, 0}));
}

TEST(Sampler, MinusInfinityIsNeverChosen) {
  const float never = -INFINITY;
  const std::vector<float> logits{never, 0, never, 0, never};
  EXPECT_EQ(counts(logits, {}, 100), (std::vector<int>{0, 50, 0, 50, 0}));
  EXPECT_EQ(sample_token(logits, {.top_k = 4}, std::nextafter(1.0, 0.0)), 3);
}

// Sums of 50,000 rounded weights need not reach their total: the largest u must still give a token.
TEST(Sampler, TheLargestUniformNumberGivesAToken) {
  std::vector<float> logits(50257);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(std::sin(double(i)) * 5);
  const int32_t token = sample_token(logits, {}, std::nextafter(1.0, 0.0));
  EXPECT_GE(token, 0);
  EXPECT_LT(token, 50257);
}

TEST(Sampler, BadLogitsAreErrorsThatNameTheToken) {
  EXPECT_TRUE(holds(error_of([] { sample_token({0, NAN}, {}, 0); }), {"token 1", "nan"}));
  EXPECT_TRUE(holds(error_of([] { sample_token({INFINITY, 0}, {}, 0); }), {"token 0", "inf"}));
  EXPECT_TRUE(holds(error_of([] { sample_token({-INFINITY}, {}, 0); }), {"none of them finite"}));
  EXPECT_TRUE(holds(error_of([] { sample_token({}, {}, 0); }), {"0 logits"}));
}

TEST(Sampler, SettingsOutOfRangeAreErrors) {
  const double nan = NAN;
  EXPECT_TRUE(holds(error_of([] { check_sampling({.temperature = -1}); }), {"temperature", "-1"}));
  EXPECT_THROW(check_sampling({.temperature = nan}), Error);
  EXPECT_THROW(check_sampling({.temperature = INFINITY}), Error);
  EXPECT_TRUE(holds(error_of([] { check_sampling({.top_k = -2}); }), {"top-k", "-2"}));
  EXPECT_TRUE(holds(error_of([] { check_sampling({.top_p = 0}); }), {"top-p", "0"}));
  EXPECT_THROW(check_sampling({.top_p = 1.01}), Error);
  EXPECT_THROW(check_sampling({.top_p = nan}), Error);
  EXPECT_THROW(sample_token({0}, {}, 1.0), Error);
  EXPECT_THROW(sample_token({0}, {}, -0.1), Error);
}

}  // namespace
}  // namespace gradus::train
