// What is common to the steps of all optimizers: deciding on the device, reading results late.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/grad_norm.h"
#include "optim/sgd.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

void give_gradient(const Tensor& x, const std::vector<double>& g) {
  sum(mul(x, tensor(g, x.shape(), x.dtype(), x.device()))).backward();
}

TEST(Step, ResultsAreReadLateAndInAnyOrder) {
  for (Device device : test_devices()) {
    Tensor x = zeros({3}, DType::f32, device).requires_grad_();
    Sgd sgd(default_groups({x}));
    std::vector<StepResult> results;
    for (int k = 1; k < kAhead; ++k) {
      sgd.zero_grad();
      give_gradient(x, {3.0 * k, 4.0 * k, k == 4 ? INFINITY : 12.0 * k});
      results.push_back(sgd.step(0.5 / k, {.max_norm = 1000}));
    }
    for (int k = kAhead - 1; k >= 1; --k) {
      const StepResult& r = results[size_t(k - 1)];
      EXPECT_EQ(r.applied(), k != 4);
      EXPECT_EQ(r.non_finite(), k == 4 ? "parameter 0" : "");
      EXPECT_EQ(r.grad_norm(), k == 4 ? INFINITY : 13.0 * k);
      EXPECT_EQ(r.lr(), 0.5 / k);
      EXPECT_EQ(r.updates(), k < 4 ? k : k - 1);
    }
    EXPECT_EQ(sgd.steps(), kAhead - 2);
    EXPECT_EQ(x.at(0), -1.5 * (kAhead - 2));  // every update moved it by 0.5/k · 3k
  }
}

TEST(Step, AResultThatIsTooOldIsAnErrorUnlessItWasReadInTime) {
  Tensor x = zeros({1}).requires_grad_();
  Sgd sgd(default_groups({x}));
  StepResult read = sgd.step(0.1), unread = sgd.step(0.1);
  EXPECT_TRUE(read.applied());
  for (int k = 0; k < kAhead; ++k) sgd.step(0.1);
  EXPECT_TRUE(read.applied());
  EXPECT_THROW(unread.applied(), Error);
}

TEST(Step, AResultOutlivesItsOptimizer) {
  StepResult result;
  {
    Tensor x = zeros({2}).requires_grad_();
    x.set_name("x");
    Sgd sgd(default_groups({x}));
    give_gradient(x, {1, NAN});
    result = sgd.step(0.1);
  }
  EXPECT_EQ(result.non_finite(), "x");
}

// O17: the rate of a step follows the updates applied, also where the host asked for the step before
// it could know of a skipped one. On the CPU each step is decided at once; the rates are functions.
TEST(Step, O17_TheRateIsThatOfTheUpdatesApplied) {
  for (Device device : test_devices()) {
    Tensor x = zeros({1}, DType::f64, device).requires_grad_();
    Sgd sgd(default_groups({x}));
    std::vector<StepResult> results;
    for (int k = 0; k < 6; ++k) {
      sgd.zero_grad();
      give_gradient(x, {k == 1 || k == 3 ? NAN : 1.0});
      results.push_back(sgd.request([](int64_t n) { return Rates{std::pow(2, n), 0}; }));
      sgd.run();
    }
    const double expected[] = {1, 2, 2, 4, 4, 8};
    for (int k = 0; k < 6; ++k) EXPECT_EQ(results[size_t(k)].lr(), expected[k]) << k;
    EXPECT_EQ(x.item(), -(1 + 2 + 4 + 8));
  }
}

// The rates of all counts that are possible are sent along, and the true one is taken.
TEST(Step, TheDeviceTakesTheRateOfTheCountThatBecameTrue) {
  StepRequest request;
  request.first_update = 7;
  for (int i = 0; i < kAhead; ++i) request.rates[i] = {.lr = 0.1 * i, .weight_decay = i * 1.0};
  for (int64_t skipped : {0, 2, 5}) {
    StepNumbers n;
    n.attempts = 14, n.updates = 12 - skipped, n.squares = 4;
    const StepRecord r = decide(n, request, {}, nullptr, false);
    EXPECT_EQ(r.lr, 0.1 * double(5 - skipped));
    EXPECT_EQ(n.weight_decay, double(5 - skipped));
    EXPECT_EQ(r.attempt, 15);
    EXPECT_EQ(r.updates, 13 - skipped);
  }
}

TEST(Step, ASkippedStepChangesNoNumberOfAnUpdate) {
  const StepRequest any;
  StepNumbers n;
  n.attempts = n.updates = 3, n.lr = 0.5, n.gradient_scale = 0.25, n.rest1 = 0.7;
  for (double squares : {double(NAN), double(INFINITY)}) {
    n.squares = squares;
    const StepRecord r = decide(n, any, {0.9, 0.99}, nullptr, false);
    EXPECT_FALSE(r.applied || n.applied);
    EXPECT_EQ(n.updates, 3);
    EXPECT_EQ(n.lr, 0.5);
    EXPECT_EQ(n.gradient_scale, 0.25);
    EXPECT_EQ(n.rest1, 0.7);
  }
  EXPECT_EQ(n.attempts, 5);
}

TEST(Step, NormsAboveTheLimitAreSkipped) {
  Tensor x = zeros({3}).requires_grad_();
  Sgd sgd(default_groups({x}));
  give_gradient(x, {3, 4, 12});
  EXPECT_TRUE(sgd.step(0, {.skip_above = 13}).applied());
  const StepResult r = sgd.step(1, {.skip_above = 12.9});
  EXPECT_FALSE(r.applied());
  EXPECT_EQ(r.non_finite(), "");
  EXPECT_NE(r.why_skipped().find("13"), std::string::npos) << r.why_skipped();
  EXPECT_EQ(x.to_vector(), (std::vector<double>{0, 0, 0}));
}

TEST(Step, ZerosAreCountedWithoutTheGaps) {
  for (Device device : test_devices())
    for (DType dtype : {DType::f64, DType::f32}) {
      Tensor x = ones({70}, dtype, device).requires_grad_(), y = ones({5, 3}, dtype, device);
      y.requires_grad_();
      Sgd sgd(default_groups({x, y}));
      std::vector<double> g(70, 1.0);
      g[0] = g[69] = 0, g[33] = -0.0;
      give_gradient(x, g);  // no backward reaches y: 15 zeros
      EXPECT_EQ(sgd.step(0.1, {.count_zeros = true}).zeros(), 18);
      EXPECT_THROW(sgd.step(0.1).zeros(), Error);
    }
}

/// Gradients that a device sums in many blocks, with one element that is not finite.
TEST(Step, TheFirstOfManyNonFiniteGradientsIsFound) {
  const int64_t n = 300'000;
  for (Device device : test_devices())
    for (DType dtype : {DType::f64, DType::f32}) {
      Tensors leaves;
      for (int i = 0; i < 5; ++i) leaves.push_back(ones({n}, dtype, device).requires_grad_());
      Sgd sgd(default_groups(leaves));
      for (const Tensor& x : leaves) mul(x, x).backward(ones({n}, dtype, device));
      const StepResult first = sgd.step(0);
      EXPECT_NEAR(first.grad_norm() / (2 * std::sqrt(5.0 * double(n))), 1, 1e-14);
      leaves[3].grad().set(0, NAN), leaves[2].grad().set(n - 1, -INFINITY);
      leaves[2].grad().set(77'777, NAN);
      const StepResult r = sgd.step(0);
      EXPECT_EQ(r.non_finite(), "parameter 2");
      EXPECT_EQ(r.record().non_finite, sgd.flat().slots()[2].offset + 77'777);
    }
}

// P8, P14: norm and skip are decided by what all ranks have together.
TEST(Step, P8_P14_RanksDecideByWhatAllOfThemFound) {
  for (Device device : test_devices()) {
    Tensor x = zeros({2}, DType::f64, device).requires_grad_();
    Sgd sgd(default_groups({x}));
    give_gradient(x, {3, 4});
    auto other = [&](double squares) {
      return [=](const Tensor& mine) {
        EXPECT_EQ(mine.to_vector(), (std::vector<double>{25, -1, 64}));
        return cat({mine, tensor({squares, -1, 64}, {1, 3}, DType::f64, device)}, 0);
      };
    };
    EXPECT_EQ(sgd.step(1, {.max_norm = 6.5, .over_ranks = other(144)}).grad_norm(), 13);
    EXPECT_NEAR(x.at(1), -2, 1e-6);
    EXPECT_FALSE(sgd.step(1, {.over_ranks = other(NAN)}).applied());
  }
}

// E2: on a GPU an index out of range is known late; the step must not have used what came of it.
TEST(Step, E2_AnErrorOnTheDeviceSkipsTheStepAndIsThrownByItsResult) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  Tensor table = ones({4, 3}, DType::f32, kCuda).requires_grad_();
  Adam adam(default_groups({table}));
  sum(embedding(table, tensor({0, 4}, {2}, DType::i32, kCuda))).backward();
  const StepResult r = adam.step(0.1);
  EXPECT_THROW(r.applied(), Error);
  EXPECT_EQ(table.to_vector(), std::vector<double>(12, 1));
  EXPECT_EQ(adam.steps(), 0);
  adam.zero_grad();
  sum(embedding(table, tensor({0, 3}, {2}, DType::i32, kCuda))).backward();
  EXPECT_TRUE(adam.step(0.1).applied());
  EXPECT_EQ(adam.steps(), 1);
}

TEST(Step, DevicesDecideAlike) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  std::vector<std::vector<double>> values;
  for (Device device : test_devices()) {
    Generator random(3);
    Tensor x = normal({1000}, random, 0, 1, DType::f64).requires_grad_();
    Tensor y = to(x.detach(), device).requires_grad_();
    Adam adam(default_groups({y}), {.weight_decay = 0.1});
    for (int k = 0; k < 5; ++k) {
      adam.zero_grad();
      sum(mul(mul(y, y), y)).backward();
      adam.step(1e-2, {.max_norm = 1});
    }
    values.push_back(y.to_vector());
  }
  for (size_t i = 0; i < 1000; ++i) EXPECT_NEAR(values[0][i], values[1][i], 1e-13);
}

}  // namespace
}  // namespace gradus::optim
