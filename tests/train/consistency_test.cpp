#include "train/consistency.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

Tensor values(const Shape& shape, std::vector<double> v) {
  const Tensor t = empty(shape, DType::f64);
  std::copy(v.begin(), v.end(), t.data<double>());
  return t;
}

std::string text_of(const ConsistencyReport& report) {
  std::ostringstream out;
  print(out, report);
  return out.str();
}

// Layer 1 of 2.
ConsistencyReport compare(const Tensor& left, const Tensor& right,
                          Bound bound = Bound::flat(1e-3)) {
  ConsistencyCheck check(bound, 2);
  check.add("w", 1, left, right);
  return check.finish();
}

TEST(Consistency, BoundsGrowWithTheLayersAbove) {
  // 64 · 2⁻²³ · 1.03³ = 8.34e-6: the bound that §26 derives for a stack of two layers at its embedding.
  EXPECT_NEAR(bound_of(DType::f32).at(3), 64 * 0x1p-23 * 1.03 * 1.03 * 1.03, 1e-18);
  EXPECT_EQ(bound_of(DType::f32).at(0), 64 * 0x1p-23);
  EXPECT_EQ(bound_of(DType::f64).at(9), 1e-12);
  EXPECT_EQ(bound_of(DType::bf16).at(0), 4 * 0x1p-7);
  EXPECT_FALSE(bound_of(DType::bf16).judges_rows);
  const auto report = compare(values({1}, {1}), values({1}, {1}), bound_of(DType::f32));
  EXPECT_EQ(report.tensors[0].bound, bound_of(DType::f32).at(2));  // L + 1 − l = 2
}

// ‖(3, 4)‖ = 5 and ‖(0, 0.5)‖ = 0.5; the second row is (0, 0.5) from one of length 0.5.
TEST(Consistency, OneWrongRowShowsInItsRow) {
  const auto report = compare(values({2, 2}, {3, 4, 0, 0.5}), values({2, 2}, {3, 4, 0, 1}));
  const TensorDifference& t = report.tensors[0];
  EXPECT_NEAR(t.rel, 0.5 / std::sqrt(25.25), 1e-15);
  EXPECT_NEAR(t.row_rel, 1, 1e-15);
  EXPECT_EQ(t.place, "(1, 1)");
  EXPECT_EQ(t.left, 0.5);
  EXPECT_EQ(t.right, 1);
  EXPECT_FALSE(report.agrees());
  EXPECT_TRUE(holds(text_of(report), {"w ", "DIFFERS", "(1, 1): 0.5, 1", "moved by one place"}));
}

TEST(Consistency, ARowWithinItsTensorsBoundIsStillJudged) {
  // The tensor's rel is 1e-4, below 1e-3; its small row is off by all of itself.
  const auto report = compare(values({2, 1}, {10, 0.001}), values({2, 1}, {10, 0.002}));
  EXPECT_LT(report.tensors[0].rel, 1e-3);
  // The row's norm, 0.001, is below the floor 1e-3 · √(100/2) = 0.00707.
  EXPECT_NEAR(report.tensors[0].row_rel, 0.001 / (1e-3 * std::sqrt((100 + 1e-6) / 2)), 1e-9);
  EXPECT_FALSE(report.agrees());
  Bound rows_shown = Bound::flat(1e-3);
  rows_shown.judges_rows = false;
  EXPECT_TRUE(
      compare(values({2, 1}, {10, 0.001}), values({2, 1}, {10, 0.002}), rows_shown).agrees());
}

// A bias of keys: 0 in mathematics, noise in arithmetic.
TEST(Consistency, NoiseWhereTheGradientIsZeroIsBelowTheFloor) {
  ConsistencyCheck check(Bound::flat(1e-12), 1);
  check.add("keys.bias", 1, values({2}, {1e-17, -2e-17}), values({2}, {-3e-17, 1e-17}));
  check.add("weight", 1, values({2}, {1, 1}), values({2}, {1, 1}));
  const auto report = check.finish();
  EXPECT_TRUE(report.agrees()) << text_of(report);
  EXPECT_EQ(report.warnings.size(), 1u);
  EXPECT_TRUE(holds(report.warnings[0], {"keys.bias"}));
}

TEST(Consistency, ASharedFactorShowsInTheNormEvenIfTensorsWereClipped) {
  ConsistencyCheck check(Bound::flat(1e-6), 1);
  check.add("w", 1, values({1}, {1}), values({1}, {1}));
  check.add_number("norm", 2, 4);
  check.add_count("targets", 7, 7);
  const auto report = check.finish();
  EXPECT_FALSE(report.agrees());
  EXPECT_FALSE(report.numbers[0].agrees);
  EXPECT_EQ(report.numbers[0].rel, 0.5);
  EXPECT_TRUE(report.numbers[1].agrees);
  EXPECT_TRUE(holds(text_of(report), {"the norm differs"}));
}

TEST(Consistency, OneTargetMoreIsADifference) {
  ConsistencyCheck check(Bound::flat(1), 1);
  check.add("w", 1, values({1}, {1}), values({1}, {1}));
  check.add_count("targets", 1000000, 1000001);
  EXPECT_FALSE(check.finish().agrees());
}

TEST(Consistency, NotANumberNeverAgrees) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int side : {0, 1, 2}) {
    const Tensor good = values({3}, {1, 2, 3}), bad = values({3}, {1, nan, 3});
    const auto report = compare(side == 1 ? good : bad, side == 0 ? good : bad);
    EXPECT_FALSE(report.agrees()) << side;
    EXPECT_EQ(report.tensors[0].place, "(1,)");
  }
  ConsistencyCheck check(Bound::flat(1), 1);
  check.add("w", 1, values({1}, {1}), values({1}, {1}));
  check.add_number("loss", nan, nan);
  EXPECT_FALSE(check.finish().agrees());
}

TEST(Consistency, NothingAtAllIsAFault) {
  EXPECT_FALSE(compare(values({2}, {0, 0}), values({2}, {0, 0})).agrees());
  EXPECT_FALSE(ConsistencyCheck(Bound::flat(1), 1).finish().agrees());
  const auto other = compare(values({2}, {1, 0}), values({2, 1}, {1, 0}));
  EXPECT_TRUE(holds(text_of(other), {"FAULT: w is f64 (2,) on the left, f64 (2, 1) on the right"}));
}

TEST(Consistency, TheRollTellsUnrelatedDataFromRounding) {
  const Tensor a = values({4}, {1, -2, 3, -4});
  const auto unrelated = compare(a, values({4}, {-2, 3, -4, 1}));  // a, moved
  EXPECT_NEAR(unrelated.tensors[0].rolled, std::sqrt(16. / 30), 1e-15);
  EXPECT_NEAR(unrelated.tensors[0].rel, std::sqrt(108. / 30), 1e-15);
  EXPECT_TRUE(holds(text_of(unrelated), {"unrelated"}));
  const auto rounding = compare(a, values({4}, {1.002, -2.004, 3.006, -4.008}));
  EXPECT_TRUE(holds(text_of(rounding), {"a matter of precision"}));
}

}  // namespace
}  // namespace gradus::train
