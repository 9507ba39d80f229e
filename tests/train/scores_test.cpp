#include "train/scores.h"

#include <gtest/gtest.h>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

// P6: sums over counts, not a mean of means: (6, 3) and (4, 1) give 2.5.
TEST(Scores, P6_PartsAddUp) {
  Scores a, b;
  a.sum = 6, a.count = 3, a.right = 1, a.pairs = {2, 4}, a.right_pairs = 3;
  b.sum = 4, b.count = 1, b.right = 1, b.pairs = {1, 1}, b.right_pairs = 0;
  a += b;
  EXPECT_EQ(a.mean(), 2.5);
  EXPECT_EQ(a.accuracy(), 0.5);
  EXPECT_EQ(a.pairs.mean(), 0.6);
  EXPECT_EQ(a.pair_accuracy(), 0.6);
  EXPECT_EQ(Scores{}.mean(), 0);
}

// Wilson's interval by hand for 8 of 10, z² = 3.841459: middle (0.8 + 0.192073)/1.384146 = 0.716740,
// reach 1.959964 √(0.016 + 0.009604)/1.384146 = 0.226577.
TEST(Scores, ConfidenceInterval) {
  const auto [low, high] = confidence_interval(8, 10);
  EXPECT_NEAR(low, 0.490162, 2e-6);
  EXPECT_NEAR(high, 0.943318, 2e-6);
  EXPECT_NEAR(confidence_interval(0, 10).first, 0, 1e-15);
  EXPECT_NEAR(confidence_interval(10, 10).second, 1, 1e-15);
  EXPECT_EQ(confidence_interval(0, 0), std::pair(0., 1.));
}

TEST(Scores, Text) {
  Scores s;
  s.sum = 5, s.count = 2000;
  EXPECT_EQ(scores_text(s, {}), "validation loss 0.0025 over 2,000 held-out tokens");
  s.right = 500, s.pairs = {7, 10}, s.right_pairs = 8;
  EXPECT_EQ(scores_text(s, 5.97744),
            "validation loss 0.0025 over 2,000 masked tokens (unigram entropy 5.9774), 25.0 % "
            "right; next "
            "sentence: loss 0.7000, 80.0 % right (95 % confidence: 49.0 to 94.3 %) of 10 pairs");
}

}  // namespace
}  // namespace gradus::train
