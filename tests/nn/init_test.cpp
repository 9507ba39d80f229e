#include "nn/init.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus::nn {
namespace {

constexpr uint64_t kSite = fnv1a("layers.0.mlp.fc1.weight");

std::vector<double> drawn(const Parameter& p, uint64_t seed = 1234) {
  initialize(p, Philox::at(seed, kSite));
  return p.to_vector();
}

TEST(Init, NormalNumbersOfAName) {
  Parameter p({2, 3}, init::normal(1));
  const double expected[] = {0.204666612, 1.577677905,  -0.554832845,
                             0.752360906, -0.950789835, -0.604267648};
  std::vector<double> values = drawn(p);
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(values[size_t(i)], expected[i], 1e-7);  // f32: u = 6e-8
}

TEST(Init, MeanAndDeviationScale) {
  Parameter p({2, 3}, init::normal(1)), q({2, 3}, init::normal(0.02, 3));
  std::vector<double> z = drawn(p), y = drawn(q);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(y[i], 3 + 0.02 * z[i], 3 * 0x1p-23);
}

/// The largest and the root mean square of 10⁶ values.
std::pair<double, double> spread(Initializer init) {
  Parameter p({1000, 1000}, init);
  double largest = 0, squares = 0;
  for (double v : drawn(p)) {
    largest = std::max(largest, std::abs(v));
    squares += v * v;
  }
  return {largest, std::sqrt(squares / 1e6)};
}

// The estimate of a deviation from n values has a relative deviation of about 1/√(2n) = 7e-4.
TEST(Init, VarianceRules) {
  struct {
    Initializer init;
    double deviation;
    bool uniform;
  } rules[] = {{init::xavier_uniform(30, 70), std::sqrt(2 / 100.0), true},
               {init::xavier_normal(30, 70, 3), 3 * std::sqrt(2 / 100.0), false},
               {init::kaiming_uniform(50), std::sqrt(2 / 50.0), true},
               {init::kaiming_normal(50, 1), std::sqrt(1 / 50.0), false},
               {init::uniform(-0.5, 0.5), 0.5 / std::sqrt(3.0), true},
               {init::constant(-2), 2, false}};
  for (const auto& rule : rules) {
    auto [largest, deviation] = spread(rule.init);
    EXPECT_NEAR(deviation / rule.deviation, 1, 4e-3);
    if (rule.uniform) {
      EXPECT_LE(largest, std::sqrt(3.0) * rule.deviation * (1 + 0x1p-23));
      EXPECT_GT(largest, std::sqrt(3.0) * rule.deviation * 0.999);
    }
  }
}

TEST(Init, R10_ShardIsTheSliceOfTheWhole) {
  struct {
    Shape whole, part;
    int dim, ranks, pieces;
  } cuts[] = {{{12, 5}, {4, 5}, 0, 3, 1},
              {{12, 5}, {6, 5}, 0, 2, 3},
              {{5, 12}, {5, 4}, 1, 3, 1},
              {{2, 8, 3}, {2, 4, 3}, 1, 2, 2},
              {{8}, {2}, 0, 4, 1}};
  for (Device device : test_devices())
    for (Initializer init : {init::normal(0.3), init::uniform(-1, 2)})
      for (const auto& cut : cuts) {
        Parameter whole(cut.whole, init);
        drawn(whole);
        for (int rank = 0; rank < cut.ranks; ++rank) {
          Parameter part(cut.part, init,
                         {.dim = cut.dim, .rank = rank, .ranks = cut.ranks, .pieces = cut.pieces});
          part.set_data(to(part.detach(), device));
          EXPECT_EQ(part.global_shape(), cut.whole);
          Tensors pieces;
          for (const Tensor& piece : split(whole.detach(), cut.pieces, cut.dim))
            pieces.push_back(split(piece, cut.ranks, cut.dim)[size_t(rank)]);
          EXPECT_EQ(drawn(part), cat(pieces, cut.dim).to_vector()) << cut.whole << " rank " << rank;
        }
      }
}

// 7 rows over 3 ranks, 4 rows each: ranks hold 4, 3 and 0 rows of the whole.
TEST(Init, PaddingOfATableStaysZero) {
  Parameter whole({7, 5}, init::normal(0.3));
  std::vector<double> expected = drawn(whole);
  const int64_t rows[] = {4, 3, 0};
  for (int rank = 0; rank < 3; ++rank) {
    Parameter part({4, 5}, init::normal(0.3), padded_shard(rank, 3, 4, 7));
    EXPECT_EQ(part.global_shape(), (Shape{7, 5}));
    EXPECT_EQ(part.real_numel(), rows[rank] * 5);
    std::vector<double> values = drawn(part);
    for (int64_t i = 0; i < 20; ++i)
      EXPECT_EQ(values[size_t(i)], i < rows[rank] * 5 ? expected[size_t(rank * 20 + i)] : 0);
  }
  EXPECT_EQ(padded_shard(1, 2, 4, 8).size, 0);  // it divides
  EXPECT_THROW(Parameter({4, 5}, init::zeros(), {.dim = 1, .ranks = 3, .size = 7}), Error);
}

TEST(Init, SameValuesInEveryTypeAndOnEveryDevice) {
  Parameter wide({257, 33}, init::normal(0.02));
  wide.set_data(cast(wide.detach(), DType::f64));
  std::vector<double> expected = drawn(wide);
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Parameter p({257, 33}, init::normal(0.02));
      p.set_data(to(cast(p.detach(), dtype), device));
      std::vector<double> values = drawn(p);
      for (size_t i = 0; i < values.size(); ++i)  // narrow types are rounded to f32 on the way
        ASSERT_NEAR(values[i], expected[i], 1.01 * roundoff(dtype) * std::abs(expected[i]) + 1e-8);
    }
}

TEST(Init, SeedAndNameMatter) {
  Parameter p({4}, init::normal(1));
  std::vector<double> first = drawn(p);
  EXPECT_EQ(drawn(p), first);
  EXPECT_NE(drawn(p, 1235), first);
  initialize(p, Philox::at(1234, fnv1a("layers.1.mlp.fc1.weight")));
  EXPECT_NE(p.to_vector(), first);
}

TEST(Init, WrongUseSaysWhy) {
  EXPECT_THROW(init::uniform(1, 0), Error);
  EXPECT_THROW(init::normal(-1), Error);
  EXPECT_THROW(Parameter({4, 3}, init::ones(), {.dim = 2, .ranks = 2}), Error);
  EXPECT_THROW(Parameter({4, 3}, init::ones(), {.dim = 0, .rank = 2, .ranks = 2}), Error);
  EXPECT_THROW(Parameter({4, 3}, init::ones(), {.dim = 1, .ranks = 2, .pieces = 2}), Error);
}

}  // namespace
}  // namespace gradus::nn
