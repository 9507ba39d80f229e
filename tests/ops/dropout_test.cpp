#include <gtest/gtest.h>

#include <cmath>

#include "core/allocator.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

TEST(Dropout, R5_TheMaskIsThatOfTheStreamOnEveryDevice) {
  const double p = 0.3;
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      for (int64_t n : {1, 7, 1003, 40000}) {
        Generator g(11);
        g.next();
        Values y = dropout(ones({n}, dtype, device), p, g).to_vector();
        double kept = full({}, 1 / (1 - p), dtype).item();
        if (dtype != DType::f64) kept = full({}, float(1 / (1 - p)), dtype).item();
        Philox stream{11, 1};
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(y[size_t(i)], stream.keep(uint64_t(i), drop_threshold(p)) ? kept : 0) << i;
      }
}

TEST(Dropout, R4_BackwardHasTheMaskAndScaleOfForward) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Generator g(3);
      Tensor x = normal({50, 7}, g, 2, 0.1, dtype, device).requires_grad_();
      Tensor y = dropout(x, 0.4, g);
      Values dx = grad(y, {x}, ones({50, 7}, dtype, device))[0].to_vector();
      double scale = full({}, float(1 / 0.6), dtype).item();
      if (dtype == DType::f64) scale = 1 / 0.6;
      for (size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], y.at(int64_t(i)) == 0 ? 0 : scale);
    }
}

TEST(Dropout, R1_ProbabilityOneGivesZeros) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Generator g(3);
      Tensor x = tensor({1, INFINITY, -INFINITY, NAN, 0}, {5}, dtype, device).requires_grad_();
      Tensor y = dropout(x, 1, g);
      EXPECT_EQ(y.to_vector(), Values(5, 0.0));
      Tensor c = tensor({1, INFINITY, NAN, 2, 3}, {5}, dtype, device);
      EXPECT_EQ(grad(y, {x}, c)[0].to_vector(), Values(5, 0.0));
    }
}

TEST(Dropout, R2_AWrongProbabilityIsAnErrorWithTheValue) {
  Generator g(3);
  for (double p : {-0.1, 1.5, double(NAN)}) {
    std::string text;
    try {
      dropout(ones({2}), p, g);
    } catch (const Error& e) {
      text = e.what();
    }
    std::ostringstream value;
    value << p;
    EXPECT_NE(text.find(value.str()), std::string::npos) << text;
  }
  EXPECT_THROW(dropout(arange(3), 0.5, g), Error);
  EXPECT_EQ(g.state().streams, 0u);
}

TEST(Dropout, R3_ProbabilityZeroIsTheIdentityAndDrawsNothing) {
  Generator g(3);
  Tensor x = tensor({0.1, INFINITY, -3}, {3}).requires_grad_();
  EXPECT_EQ(dropout(x, 0, g).to_vector(), x.to_vector());
  EXPECT_EQ(grad(dropout(x, 0, g), {x}, tensor({1, -2, 3}, {3}))[0].to_vector(),
            (Values{1, -2, 3}));
  EXPECT_EQ(g.state(), Generator(3).state());
}

TEST(Dropout, R5_EachCallHasItsOwnMaskAndTheSeedRepeatsThem) {
  for (Device device : test_devices()) {
    Generator a(5), b(5);
    Tensor x = ones({100}, DType::f32, device);
    Values first = dropout(x, 0.5, a).to_vector(), second = dropout(x, 0.5, a).to_vector();
    EXPECT_NE(first, second);
    EXPECT_EQ(first, dropout(x, 0.5, b).to_vector());
    EXPECT_EQ(second, dropout(x, 0.5, b).to_vector());
  }
}

// The kept share of n = 2¹⁶ elements has deviation √(p (1 − p) / n) < 0.002: five of those.
TEST(Dropout, TheMeanStays) {
  Generator g(6);
  Tensor y = dropout(ones({1 << 16}), 0.1, g);
  double mean = 0;
  for (double v : y.to_vector()) mean += v / (1 << 16);
  EXPECT_NEAR(mean, 1, 5 * std::sqrt(0.1 * 0.9 / (1 << 16)) / 0.9);
}

TEST(Dropout, G6_ElementsAreCountedInTheShapeNotInMemory) {
  for (Device device : test_devices()) {
    Generator a(5), b(5), c(5), d(5);
    Tensor stored = normal({9, 13}, d, 0, 1, DType::f32, device);
    Tensor view = transpose(stored, 0, 1), dense = clone(view);
    EXPECT_EQ(dropout(view, 0.5, a).to_vector(), dropout(dense, 0.5, b).to_vector());
    // A slice begins where no vector load may begin.
    Tensor odd = slice(reshape(stored, {117}), 0, 1, 100);
    Values y = dropout(odd, 0.5, c).to_vector();
    for (uint64_t i = 0; i < 99; ++i)
      EXPECT_EQ(y[i] != 0, Philox({5, 0}).keep(i, drop_threshold(0.5)));
  }
}

TEST(Dropout, NoMaskIsStored) {
  Generator g(5);
  Tensor x = ones({1 << 16}).requires_grad_();
  int64_t before = memory_stats(kCpu).live;
  Tensor y = dropout(x, 0.5, g);
  EXPECT_LT(memory_stats(kCpu).live - before, bytes_of(x) + 1024);
}

}  // namespace
}  // namespace gradus
