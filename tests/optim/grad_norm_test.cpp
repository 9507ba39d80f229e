#include "optim/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "optim/sgd.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

double norm(const Tensors& list, double p = 2) { return power_sum(list, p).norm(); }

TEST(GradNorm, AnyPOfThreeFourTwelve) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor g = tensor({3, -4, 12}, {3}, dtype, device);
      EXPECT_EQ(norm({g}), 13);
      EXPECT_EQ(norm({g}, 1), 19);
      EXPECT_NEAR(norm({g}, 3), 12.2070550, 6e-8);  // nine digits are given
      EXPECT_EQ(norm({g}, kInfinity), 12);
      EXPECT_NEAR(norm({g}, 0.3),
                  std::pow(std::pow(3, 0.3) + std::pow(4, 0.3) + std::pow(12, 0.3), 1 / 0.3),
                  1e-10);
      Tensor a = tensor({3}, {1}, dtype, device), b = tensor({-4, 12}, {2}, dtype, device);
      for (double p : {1.0, 2.0, 3.0, 0.3, kInfinity})
        EXPECT_NEAR(norm({a, b}, p), norm({g}, p), 1e-10);
    }
}

TEST(GradNorm, SquaresOfAnyShapeAddUp) {
  for (Device device : test_devices())
    EXPECT_EQ(sum_of_squares(tensor({1, -2, 2, 4}, {2, 2}, DType::f32, device)), 25);
}

TEST(GradNorm, SumsOfRanksAreJoined) {
  for (double p : {1.0, 2.0, 3.0, kInfinity}) {
    PowerSum sum = power_sum({tensor({3}, {1}, DType::f64)}, p);
    sum += power_sum({tensor({0}, {1}, DType::f64)}, p);
    sum += power_sum({tensor({-4, 12}, {2}, DType::f64)}, p);
    EXPECT_NEAR(sum.norm(), norm({tensor({3, -4, 12}, {3}, DType::f64)}, p), 1e-13);
  }
  PowerSum two{.p = 2}, three{.p = 3};
  EXPECT_THROW(two += three, Error);
}

TEST(GradNorm, O2_NeitherOverflowsNorVanishes) {
  const int64_t n = 300000;
  for (Device device : test_devices())
    for (double p : {1.0, 2.0, 3.0, 10.0}) {
      double count = std::pow(double(n), 1 / p);
      for (double x : {1e20, 1e-30, 3e38, 1e-45}) {
        double value = double(float(x));
        EXPECT_NEAR(norm({full({n}, x, DType::f32, device)}, p) / (value * count), 1, 1e-6)
            << p << " " << x;
      }
      for (double x : {1e300, 1e-300})
        EXPECT_NEAR(norm({full({n}, x, DType::f64, device)}, p) / (x * count), 1, 1e-12)
            << p << " " << x;
    }
  PowerSum far = power_sum({full({1}, 1e300, DType::f64)});
  far += power_sum({full({1}, 1e-300, DType::f64)});
  EXPECT_NEAR(far.norm() / 1e300, 1, 1e-15);
}

TEST(GradNorm, IsAccurateOverManyElements) {
  Generator g(1);
  Tensor x = normal({1 << 20}, g);
  long double exact = 0;
  for (double v : x.to_vector()) exact += (long double)v * v;
  EXPECT_NEAR(norm({x}) / double(std::sqrt(exact)), 1, 1e-14);
}

TEST(GradNorm, NothingAndZeros) {
  for (double p : {1.0, 2.0, 3.0, kInfinity}) {
    EXPECT_EQ(norm({zeros({5})}, p), 0);
    EXPECT_EQ(norm({zeros({0})}, p), 0);
    EXPECT_EQ(norm({}, p), 0);
  }
  EXPECT_THROW(power_sum({zeros({5})}, 0), Error);
}

TEST(GradNorm, NonFiniteEntriesShow) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      for (double bad : {double(INFINITY), -double(INFINITY), double(NAN)})
        for (double p : {1.0, 2.0, 3.0, kInfinity}) {
          Tensor x = ones({1000}, dtype, device);
          x.set(777, bad);
          EXPECT_FALSE(std::isfinite(norm({ones({3}, dtype, device), x}, p))) << dtype << bad << p;
        }
}

TEST(GradNorm, CountsZeros) {
  for (Device device : test_devices()) {
    Tensor x = ones({100000}, DType::f32, device);
    for (int64_t i : {0, 5, 99999}) x.set(i, i == 5 ? -0.0 : 0.0);
    EXPECT_EQ(count_zeros({x, zeros({7}, DType::f32, device)}), 10);
  }
}

/// A step of size 1 from 0 leaves −c g in x.
std::vector<double> clipped(const std::vector<double>& g, double max_norm,
                            StepResult* result = nullptr) {
  Tensor x = zeros({int64_t(g.size())}).requires_grad_();
  Sgd sgd(default_groups({x}));
  sum(mul(x, tensor(g, x.shape()))).backward();
  StepResult r = sgd.step(1, {.max_norm = max_norm});
  if (result) *result = r;
  return mul(x.detach(), -1).to_vector();
}

TEST(Clip, O3_ShortensOnlyWhatIsLonger) {
  StepResult result;
  EXPECT_EQ(clipped({3, 4, 12}, 20, &result), (std::vector<double>{3, 4, 12}));
  EXPECT_EQ(result.grad_norm(), 13);
  struct {
    double max_norm, values[3];
  } cases[] = {{6.5, {1.49999988, 1.99999985, 5.99999954}},
               {1, {0.230769213, 0.307692284, 0.923076852}}};
  for (const auto& c : cases) {
    std::vector<double> g = clipped({3, 4, 12}, c.max_norm, &result);
    EXPECT_EQ(result.grad_norm(), 13);
    for (int i = 0; i < 3; ++i)  // c and the product are rounded to f32
      EXPECT_NEAR(g[size_t(i)] / c.values[i], 1, 2 * 0x1p-24 + 1e-8);
    EXPECT_NEAR(norm({tensor(g, {3})}), c.max_norm, 1e-5 * c.max_norm);
  }
  EXPECT_EQ(clip_factor(13, 13), 13 / (13 + 1e-6));
  EXPECT_EQ(clipped({0, 0}, 1, &result), (std::vector<double>{0, 0}));
  EXPECT_EQ(result.grad_norm(), 0);
  EXPECT_THROW(clip_factor(1, 0), Error);
}

TEST(Step, O1_ANonFiniteGradientSkipsTheStepAndIsNamed) {
  for (double bad : {double(INFINITY), double(NAN)}) {
    Tensor x = ones({3}).requires_grad_(), y = ones({2}).requires_grad_();
    x.set_name("x"), y.set_name("y");
    Sgd sgd(default_groups({x, y}), {.momentum = 0.9});
    sum(x + 0).backward(), sum(mul(y, 2)).backward();
    sgd.step(0.1);
    std::vector<double> x1 = x.to_vector(), y1 = y.to_vector(),
                        v1 = sgd.state()[0].value.read().to_vector();
    sgd.zero_grad();
    sum(x + 0).backward();
    sum(mul(y, tensor({1, bad}, {2}))).backward();
    StepResult result = sgd.step(0.1, {.max_norm = 1});
    EXPECT_FALSE(result.applied());
    EXPECT_EQ(result.non_finite(), "y");
    EXPECT_FALSE(std::isfinite(result.grad_norm()));
    EXPECT_EQ(x.to_vector(), x1);
    EXPECT_EQ(y.to_vector(), y1);
    EXPECT_EQ(sgd.state()[0].value.read().to_vector(), v1);
    EXPECT_EQ(sgd.steps(), 1);
  }
}

TEST(Step, WrongRatesAreErrorsAndChangeNothing) {
  Tensor x = ones({3}).requires_grad_();
  Sgd sgd(default_groups({x}));
  EXPECT_THROW(sgd.step(NAN), Error);
  EXPECT_THROW(sgd.step(-1), Error);
  EXPECT_EQ(sgd.steps(), 0);
}

}  // namespace
}  // namespace gradus::optim
