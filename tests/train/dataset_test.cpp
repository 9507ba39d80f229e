#include "train/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

// A stream whose token at position p is p, so that a batch shows where it was read.
class DatasetTest : public testing::Test {
 protected:
  TokenRange counting(int64_t count) {
    std::vector<uint16_t> ids(static_cast<size_t>(count));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = uint16_t(i);
    return whole(std::make_shared<Tokens>(write_values(directory_ / "count.bin", ids)));
  }
  TemporaryDirectory directory_;
};

std::vector<int64_t> starts(const TrainingWindows& data, int64_t first, int64_t count) {
  std::vector<int64_t> all;
  for (int64_t s = first; s < first + count; ++s) all.push_back(data.start_of(s));
  return all;
}

TEST_F(DatasetTest, TargetsFollowTheirInputs) {
  const TrainingWindows data(counting(103), 5, 4, 1);
  const Batch b = data.batch(3, 4);
  ASSERT_EQ(b.inputs.size(), 20u);
  ASSERT_EQ(b.targets.size(), 20u);
  for (size_t row = 0; row < 4; ++row)
    for (size_t t = 0; t < 5; ++t) {
      EXPECT_EQ(b.inputs[5 * row + t], data.start_of(3 + int64_t(row)) + int64_t(t));
      EXPECT_EQ(b.targets[5 * row + t], b.inputs[5 * row + t] + 1);
    }
}

TEST_F(DatasetTest, C7_TheFirstEpochMakesEveryTokenATargetOnce) {
  const TrainingWindows data(counting(101), 5, 4, 1);  // 100 targets: 20 windows, none left over
  ASSERT_EQ(data.windows(), 20);
  const Batch b = data.batch(0, 20);
  std::vector<int32_t> targets = b.targets;
  std::sort(targets.begin(), targets.end());
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(targets[i], int32_t(i) + 1);
}

TEST_F(DatasetTest, C7_EveryEpochVisitsEveryWindowOnce) {
  const int64_t count = 203, length = 8;  // 25 windows and two tokens over
  const TrainingWindows data(counting(count), length, 4, 9);
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    auto all = starts(data, epoch * data.windows(), data.windows());
    std::sort(all.begin(), all.end());
    const int64_t shift = all[0];
    EXPECT_LT(shift, length);
    for (int64_t i = 0; i < data.windows(); ++i)
      EXPECT_EQ(all[size_t(i)], std::min(shift + i * length, count - 1 - length));
  }
}

TEST_F(DatasetTest, EpochsDifferInOrderAndInWhereWindowsBegin) {
  const TrainingWindows data(counting(2001), 20, 4, 9);  // 100 windows
  std::set<std::vector<int64_t>> orders;
  std::set<int64_t> shifts;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    auto all = starts(data, epoch * 100, 100);
    orders.insert(all);
    shifts.insert(*std::min_element(all.begin(), all.end()));
  }
  EXPECT_EQ(orders.size(), 10u);
  EXPECT_GE(shifts.size(),
            5u);  // 10 draws of 20 values: fewer than 5 different has probability 1e-5
}

TEST_F(DatasetTest, TheSeedChoosesTheOrder) {
  const TokenRange range = counting(2001);
  const auto order = [&](uint64_t seed) { return starts({range, 20, 4, seed}, 0, 100); };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
  EXPECT_FALSE(std::is_sorted(order(1).begin(), order(1).end()));
}

// The stream of samples is the same however it is cut into steps, micro-batches and ranks, and
// starting at any position continues it: nothing but the position is remembered.
TEST_F(DatasetTest, C7_AnyCutOfTheStreamGivesTheSameSamples) {
  const TokenRange range = counting(203);
  const Batch whole_stream = TrainingWindows(range, 8, 4, 9).batch(0, 60);
  for (int64_t rows : {1, 3, 7}) {
    std::vector<int32_t> inputs, targets;
    for (int64_t at = 0; at < 60; at += rows) {
      const TrainingWindows resumed(range, 8, 4, 9);
      const Batch b = resumed.batch(at, std::min(rows, 60 - at));
      inputs.insert(inputs.end(), b.inputs.begin(), b.inputs.end());
      targets.insert(targets.end(), b.targets.begin(), b.targets.end());
    }
    EXPECT_EQ(inputs, whole_stream.inputs);
    EXPECT_EQ(targets, whole_stream.targets);
  }
}

TEST_F(DatasetTest, D2_ExactlyOneBatchOfTokensIsEnough) {
  const TrainingWindows data(counting(4 * 5 + 1), 5, 4, 1);
  EXPECT_EQ(data.windows(), 4);
  std::vector<int32_t> targets = data.batch(0, 4).targets;
  std::sort(targets.begin(), targets.end());
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(targets[i], int32_t(i) + 1);
  EXPECT_NO_THROW(data.batch(4, 4));  // the second epoch, its windows moved back inside the file
}

TEST_F(DatasetTest, D2_OneTokenLessNamesFileCountAndNeed) {
  const TokenRange range = counting(20);
  const std::string text = error_of([&] { TrainingWindows(range, 5, 4, 1); });
  EXPECT_TRUE(holds(text, {"count.bin", "20 tokens", "needs 21"})) << text;
}

TEST_F(DatasetTest, SplitHoldsOutTheEnd) {
  const auto [training, validation] = split(counting(210).tokens, 0.05);
  EXPECT_EQ(training.first, 0);
  EXPECT_EQ(training.count, 200);
  EXPECT_EQ(validation.first, 200);
  EXPECT_EQ(validation.count, 10);
  const TrainingWindows data(training, 3, 4, 1);
  for (int32_t target : data.batch(0, 5 * data.windows()).targets) EXPECT_LT(target, 200);
  EXPECT_EQ(ValidationWindows(validation, 3).batch(0, 1).inputs,
            (std::vector<int32_t>{200, 201, 202}));
}

TEST_F(DatasetTest, SplitRefusesAFractionOutsideZeroToOne) {
  const auto tokens = counting(100).tokens;
  for (double fraction : {0.0, 1.0, -0.1, double(NAN)})
    EXPECT_THROW(split(tokens, fraction), Error);
}

// 12 tokens, windows of 4, rows of 2: targets 1 … 11 in three windows, the last one token short, and
// one row of padding.
TEST_F(DatasetTest, H2_ValidationCountsEveryTargetOnce) {
  const ValidationWindows data(counting(12), 4);
  EXPECT_EQ(data.windows(), 3);
  EXPECT_EQ(data.batches(2), 2);
  EXPECT_EQ(data.targets(), 11);
  EXPECT_EQ(data.batch(0, 2).targets, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  const Batch last = data.batch(1, 2);
  EXPECT_EQ(last.inputs, (std::vector<int32_t>{8, 9, 10, 0, 0, 0, 0, 0}));
  EXPECT_EQ(last.targets, (std::vector<int32_t>{9, 10, 11, -1, -1, -1, -1, -1}));
  EXPECT_THROW(data.batch(2, 2), Error);
}

TEST_F(DatasetTest, H2_TheSumDoesNotDependOnTheBatchSize) {
  const ValidationWindows data(counting(103), 7);
  for (int64_t rows : {1, 2, 5, 40}) {
    int64_t sum = 0, count = 0;
    for (int64_t b = 0; b < data.batches(rows); ++b)
      for (int32_t target : data.batch(b, rows).targets)
        if (target != kIgnoreTarget) sum += target, ++count;
    EXPECT_EQ(count, 102);
    EXPECT_EQ(sum, 102 * 103 / 2);
  }
}

TEST_F(DatasetTest, ValidationNeedsTwoTokens) {
  const auto [training, validation] = split(counting(100).tokens, 0.01);
  const std::string text = error_of([&, v = validation] { ValidationWindows(v, 4); });
  EXPECT_TRUE(holds(text, {"count.bin", "100 tokens", "1 of them", "2 are needed"})) << text;
}

}  // namespace
}  // namespace gradus::train
