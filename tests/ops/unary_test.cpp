#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
using Function = std::function<Tensor(const Tensor&)>;

/// dL/dx of L = Σ c ⊙ f(x).
Values gradient(const Function& f, const Tensor& x, const Values& c) {
  Tensor leaf = x.detach().requires_grad_();
  return grad(f(leaf), {leaf}, tensor(c, x.shape(), x.dtype(), x.device()))[0].to_vector();
}

TEST(Unary, HandComputedValuesAndGradients) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      // All numbers are powers of two, so that every type is exact.
      Tensor x = tensor({4, 0.25, 16}, {3}, dtype, device);
      Values c{2, -1, 8};
      EXPECT_EQ(neg(x).to_vector(), (Values{-4, -0.25, -16}));
      EXPECT_EQ(gradient(neg, x, c), (Values{-2, 1, -8}));
      EXPECT_EQ(sqrt(x).to_vector(), (Values{2, 0.5, 4}));
      EXPECT_EQ(gradient(sqrt, x, c), (Values{0.5, -1, 1}));
      EXPECT_EQ(rsqrt(x).to_vector(), (Values{0.5, 2, 0.25}));
      EXPECT_EQ(gradient(rsqrt, x, c), (Values{-0.125, 4, -0.0625}));
      EXPECT_EQ(gradient(log, x, c), (Values{0.5, -4, 0.5}));
      Tensor z = zeros({2}, dtype, device);
      EXPECT_EQ(exp(z).to_vector(), (Values{1, 1}));
      EXPECT_EQ(gradient(exp, z, {3, -2}), (Values{3, -2}));
    }
}

// exp and log are good to one unit in the last place: 2 roundoffs of the value (at least 1).
TEST(Unary, ExponentialAndLogarithm) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor x = tensor({1, 2, 3, 0.5}, {4}, dtype, device);
      double u = 2 * roundoff(dtype);
      for (int i = 0; i < 4; ++i) {
        double v = x.at(i);
        EXPECT_NEAR(exp(x).at(i), std::exp(v), u * std::exp(v));
        EXPECT_NEAR(log(x).at(i), std::log(v), u * std::max(1.0, std::abs(std::log(v))));
      }
    }
}

TEST(Unary, LimitsAndSpecialValues) {
  const double inf = INFINITY;
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor x = tensor({0, inf, -inf}, {3}, dtype, device);
      EXPECT_EQ(exp(x).to_vector(), (Values{1, inf, 0}));
      EXPECT_EQ(log(x).at(0), -inf);
      EXPECT_EQ(log(x).at(1), inf);
      EXPECT_TRUE(std::isnan(log(x).at(2)));
      EXPECT_EQ(rsqrt(x).at(0), inf);
      EXPECT_EQ(rsqrt(x).at(1), 0);
      EXPECT_EQ(abs(x).to_vector(), (Values{0, inf, inf}));
    }
}

TEST(Unary, N11_CornersHaveOneSubgradient) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor x = tensor({-2, 0, 3}, {3}, dtype, device);
      EXPECT_EQ(abs(x).to_vector(), (Values{2, 0, 3}));
      EXPECT_EQ(gradient(abs, x, {0.5, 2, -4}), (Values{-0.5, 0, -4}));
      Tensor z = tensor({-1.5, -1, 0, 2, 2.5}, {5}, dtype, device);
      Function f = [](const Tensor& t) { return clamp(t, -1, 2); };
      EXPECT_EQ(f(z).to_vector(), (Values{-1, -1, 0, 2, 2}));
      EXPECT_EQ(gradient(f, z, {3, 0.5, -2, 4, 5}), (Values{0, 0.5, -2, 4, 0}));
    }
}

TEST(Unary, N12_NanPasses) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor x = tensor({NAN, 1}, {2}, dtype, device);
      for (Function f :
           {Function(neg), Function(exp), Function(log), Function(sqrt), Function(rsqrt),
            Function(abs), Function([](const Tensor& t) { return clamp(t, -1, 2); })}) {
        EXPECT_TRUE(std::isnan(f(x).at(0)));
        EXPECT_FALSE(std::isnan(f(x).at(1)));
      }
    }
}

TEST(Unary, N14_TheSafePatternForAForbiddenArgument) {
  for (Device device : test_devices()) {
    Tensor x = tensor({0, 4}, {2}, DType::f64, device).requires_grad_();
    Tensor zero = zeros({}, DType::f64, device), one = ones({}, DType::f64, device);
    Tensor positive = greater(x, zero);
    Tensor y = where(positive, sqrt(where(positive, x, one)), zero);
    EXPECT_EQ(y.to_vector(), (Values{0, 2}));
    EXPECT_EQ(grad(y, {x}, ones({2}, DType::f64, device))[0].to_vector(), (Values{0, 0.25}));
  }
}

TEST(Unary, N15_ShapesWithZero) {
  for (Device device : test_devices())
    for (Shape shape : {Shape{0}, Shape{2, 0}, Shape{0, 3, 4}})
      for (Function f :
           {Function(neg), Function(exp), Function(log), Function(sqrt), Function(rsqrt),
            Function(abs), Function([](const Tensor& t) { return clamp(t, -1, 2); })}) {
        Tensor x = zeros(shape, DType::f32, device).requires_grad_(), y = f(x);
        EXPECT_EQ(y.shape(), shape);
        EXPECT_EQ(grad(y, {x}, empty(shape, DType::f32, device))[0].shape(), shape);
      }
}

TEST(Unary, AnIntegerTensorOrAnEmptyIntervalIsAnError) {
  EXPECT_THROW(exp(arange(3)), Error);
  EXPECT_THROW(neg(Tensor{}), Error);
  EXPECT_THROW(clamp(ones({2}), 2, 1), Error);
  EXPECT_THROW(clamp(ones({2}), NAN, 1), Error);
}

}  // namespace
}  // namespace gradus
