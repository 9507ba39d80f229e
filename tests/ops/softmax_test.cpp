#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

constexpr double kInf = INFINITY;
using Values = std::vector<double>;

struct Result {
  Values y, dx;
};

/// f(x), and the gradient of x for the gradient dy of f(x).
template <class F>
Result run(F f, const Values& values, const Values& dy, Shape shape, DType dtype, Device device) {
  Tensor x = tensor(values, shape, dtype, device).requires_grad_();
  Tensor y = f(x);
  y.backward(tensor(dy, shape, dtype, device));
  return {y.to_vector(), x.grad().to_vector()};
}

Tensor of_rows(const Tensor& x) { return softmax(x); }
Tensor log_of_rows(const Tensor& x) { return log_softmax(x); }

void expect_equal(const Values& got, const Values& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    if (std::isfinite(want[i]))
      EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
    else
      EXPECT_EQ(std::isnan(got[i]) ? "nan" : std::to_string(got[i]),
                std::isnan(want[i]) ? "nan" : std::to_string(want[i]))
          << "element " << i;
}

/// The references are given to 9 digits. A result takes about 8 roundings: exponential, sum, quotient.
double tolerance(DType t) { return 5e-9 + 8 * roundoff(t); }

TEST(Softmax, ByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Result p = run(of_rows, {1, 2, 3}, {0.3, -0.7, 1.1}, {3}, t, device);
      expect_equal(p.y, {0.0900305732, 0.244728471, 0.665240956}, tolerance(t));
      expect_equal(p.dx, {-0.0258805751, -0.315079168, 0.340959743}, tolerance(t));
      Result l = run(log_of_rows, {1, 2, 3}, {0.3, -0.7, 1.1}, {3}, t, device);
      expect_equal(l.y, {-2.40760596, -1.40760596, -0.407605964}, tolerance(t));
      expect_equal(l.dx, {0.236978599, -0.87130993, 0.634331331}, tolerance(t));
    }
}

TEST(Softmax, AlongADimensionInTheMiddle) {
  // Two columns (1, 2, 3) and (3, 2, 1) along dimension 1, in each of two blocks.
  Values x{1, 3, 2, 2, 3, 1, 1, 3, 2, 2, 3, 1};
  double a = 0.0900305732, b = 0.244728471, c = 0.665240956;
  for (Device device : test_devices()) {
    Tensor y = softmax(tensor(x, {2, 3, 2}, DType::f64, device), 1);
    EXPECT_EQ(y.shape(), Shape({2, 3, 2}));
    expect_equal(y.to_vector(), {a, c, b, b, c, a, a, c, b, b, c, a}, 1e-9);
  }
}

TEST(Softmax, S1_RowOfMinusInfinityIsZero) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Values x{-kInf, -kInf, -kInf, 0, 0, -kInf};
      Result r = run(of_rows, x, {kInf, NAN, 2, 1, 3, NAN}, {2, 3}, t, device);
      EXPECT_EQ(r.y, (Values{0, 0, 0, 0.5, 0.5, 0}));
      EXPECT_EQ(r.dx, (Values{0, 0, 0, -0.5, 0.5, 0}));
    }
}

TEST(Softmax, S5_LogOfRowOfMinusInfinity) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Values x{-kInf, -kInf, -kInf, 0, -kInf, -kInf};
      Result r = run(log_of_rows, x, {1, NAN, 2, 3, 4, 5}, {2, 3}, t, device);
      EXPECT_EQ(r.y, (Values{-kInf, -kInf, -kInf, 0, -kInf, -kInf}));
      EXPECT_EQ(r.dx, (Values{0, 0, 0, 3 - 12, 4, 5}));  // the whole weight is on the 0
    }
}

TEST(Softmax, S6_NothingHidesANaN) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Values x{1, NAN, 2, kInf, 0, 1, -kInf, NAN, -kInf, 0, 0, -kInf};
      Values nan(9, NAN);
      Values p = nan, l = nan;
      for (double v : {0.5, 0.5, 0.0}) p.push_back(v);
      for (double v : {-std::log(2), -std::log(2), -kInf}) l.push_back(v);
      expect_equal(softmax(tensor(x, {4, 3}, t, device)).to_vector(), p, tolerance(t));
      expect_equal(log_softmax(tensor(x, {4, 3}, t, device)).to_vector(), l, tolerance(t));
    }
}

TEST(Softmax, S7_DependsOnDifferences) {
  for (Device device : test_devices())
    for (auto f : {of_rows, log_of_rows}) {
      Result r = run(f, {1, 2, 3, 101, 102, 103}, {0.3, -0.7, 1.1, 0.3, -0.7, 1.1}, {2, 3},
                     DType::f32, device);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(r.y[i], r.y[i + 3], 1e-5);
        EXPECT_NEAR(r.dx[i], r.dx[i + 3], 1e-5);
      }
    }
}

TEST(Softmax, S8_SliceEqualsItsCopy) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes)
      for (auto f : {of_rows, log_of_rows}) {
        Values x{1, 2, 9, 9, 0.5, -1, 9, 9, 3, 3.5, 9, 9};
        auto of_slice = [&](const Tensor& v) { return f(slice(v, 1, 0, 2)); };
        Tensor whole = tensor(x, {3, 4}, t, device).requires_grad_();
        Tensor y = of_slice(whole);
        Values dy{0.3, -0.7, 1.1, 0.2, -0.4, 0.6};
        y.backward(tensor(dy, {3, 2}, t, device));
        Result copy = run(f, {1, 2, 0.5, -1, 3, 3.5}, dy, {3, 2}, t, device);
        EXPECT_EQ(y.to_vector(), copy.y);
        EXPECT_EQ(slice(whole.grad(), 1, 0, 2).to_vector(), copy.dx);
        EXPECT_EQ(slice(whole.grad(), 1, 2, 4).to_vector(), Values(6, 0.0));
      }
}

TEST(Softmax, S20_EmptyTensorsKeepTheirShape) {
  for (Device device : test_devices())
    for (auto f : {of_rows, log_of_rows})
      for (Shape shape : {Shape{3, 0}, Shape{0, 3}, Shape{2, 0, 4}}) {
        Tensor x = zeros(shape, DType::f32, device).requires_grad_();
        Tensor y = f(x);
        EXPECT_EQ(y.shape(), shape);
        y.backward(zeros(shape, DType::f32, device));
        EXPECT_EQ(x.grad().shape(), shape);
        EXPECT_EQ(softmax(x, 0).shape(), shape);
      }
}

TEST(Softmax, S21_WeightsInSixteenBitsAreTheF64OnesRounded) {
  const int64_t n = 3000;
  for (Device device : test_devices())
    for (DType t : {DType::bf16, DType::f16}) {
      Tensor x = cast(tensor(
                          [] {
                            Values v;
                            for (int64_t i = 0; i < n; ++i)
                              v.push_back(4 * std::sin(0.37 * double(i * i)));
                            return v;
                          }(),
                          {n}, DType::f64, device),
                      t);
      Values got = softmax(x).to_vector(), want = softmax(cast(x, DType::f64)).to_vector();
      double smallest =
          t == DType::f16 ? 0x1p-24 : 0;  // the lower half of f16's weights is denormal
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LE(std::abs(got[i] - want[i]), std::max(2 * roundoff(t) * want[i], smallest)) << i;
    }
}

TEST(Softmax, RowsOfEveryLengthSumToOne) {
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16})
      for (int64_t n : {1, 7, 8, 31, 33, 256, 1000, 1024, 1032, 4096, 5001, 40000, 70000}) {
        Values x(static_cast<size_t>(2 * n));
        for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(double(i)) + (i == 3 ? 3 : 0);
        Values y = cast(softmax(tensor(x, {2, n}, t, device)), DType::f64).to_vector();
        for (int64_t r = 0; r < 2; ++r) {
          double sum = 0;
          for (int64_t i = 0; i < n; ++i) sum += y[size_t(r * n + i)];
          // Each weight is rounded once, evenly up and down. The sum in f32 takes n roundings, a walk
          // of √n steps of u if one lane takes them all (the sanitizer build does not vectorise).
          double walk = 2 * std::sqrt(double(n)) * roundoff(DType::f32);
          EXPECT_NEAR(sum, 1, roundoff(t) + 1e-6 + walk) << n << " " << t;
        }
      }
}

TEST(Softmax, WrongDimensionIsAnError) {
  EXPECT_THROW(softmax(zeros({2, 3}), 2), Error);
  EXPECT_THROW(log_softmax(zeros({2, 3}), -3), Error);
  EXPECT_THROW(softmax(zeros({2, 3}, DType::i32)), Error);
  EXPECT_THROW(softmax({}), Error);
}

}  // namespace
}  // namespace gradus
