#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "core/allocator.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

/// v as it is stored in `dtype`.
double rounded(double v, DType dtype) { return full({}, v, dtype).item(); }

TEST(Create, ConstantsInEveryTypeOnEveryDevice) {
  PoisonAllocations poison;
  for (Device device : test_devices())
    for (DType dtype : kAllTypes) {
      Tensor x = full({2, 3}, 3, dtype, device);
      EXPECT_EQ(x.shape(), Shape({2, 3}));
      EXPECT_EQ(x.dtype(), dtype);
      EXPECT_EQ(x.device(), device);
      EXPECT_EQ(x.to_vector(), Values(6, 3.0));
      EXPECT_EQ(zeros({4}, dtype, device).to_vector(), Values(4, 0.0));
      EXPECT_EQ(ones({4}, dtype, device).to_vector(), Values(4, 1.0));
      EXPECT_EQ(full({0, 5}, 3, dtype, device).shape(), Shape({0, 5}));
      EXPECT_EQ(arange(5, dtype, device).to_vector(), (Values{0, 1, 2, 3, 4}));
      EXPECT_EQ(arange(0, dtype, device).shape(), Shape({0}));
      EXPECT_EQ(tensor({1, 2, 3, 4}, {2, 2}, dtype, device).at(2), 3);
    }
  EXPECT_EQ(full({}, 2.5).item(), 2.5);
}

TEST(Create, LongTensorsAreFilledToTheEnd) {
  PoisonAllocations poison;
  const int64_t n = 100003;  // several threads, several blocks, an odd rest
  for (Device device : test_devices()) {
    std::vector<double> x = full({n}, -1.5, DType::f32, device).to_vector();
    EXPECT_EQ(x, Values(size_t(n), -1.5));
    std::vector<double> ramp = arange(n, DType::i32, device).to_vector();
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(ramp[size_t(i)], double(i));
  }
}

TEST(Create, AnIntegerTypeHoldsTheValueOrRefuses) {
  EXPECT_EQ(full({}, 255, DType::u8).item(), 255);
  EXPECT_EQ(full({}, -0x1p63, DType::i64).item(), -0x1p63);
  EXPECT_THROW(full({}, 256, DType::u8), Error);
  EXPECT_THROW(full({}, -1, DType::u8), Error);
  EXPECT_THROW(full({}, 1.5, DType::i64), Error);
  EXPECT_THROW(full({}, 0x1p63, DType::i64), Error);
  EXPECT_THROW(full({}, NAN, DType::i32), Error);
  EXPECT_THROW(tensor({1, 2.5}, {2}, DType::i32), Error);
  EXPECT_THROW(arange(257, DType::u8), Error);
  EXPECT_THROW(tensor({1, 2, 3}, {2}), Error);
  EXPECT_THROW(arange(-1), Error);
  EXPECT_THROW(zeros({2, -1}), Error);
}

TEST(Create, FillWritesAViewAndNothingElse) {
  for (Device device : test_devices()) {
    Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, DType::f32, device);
    uint32_t version = x.version();
    fill_(slice(x, 1, 0, 3, 2), 9);  // columns 0 and 2
    EXPECT_EQ(x.to_vector(), (Values{9, 2, 9, 9, 5, 9}));
    EXPECT_GT(x.version(), version);
  }
  Tensor w = ones({2}).requires_grad_();
  EXPECT_THROW(fill_(w, 0), Error);
  EXPECT_EQ(w.to_vector(), (Values{1, 1}));
  NoGrad guard;
  fill_(w, 0);
  EXPECT_EQ(w.to_vector(), (Values{0, 0}));
}

TEST(Create, UniformElementIsLookedUpByItsIndex) {
  const int64_t n = 40001;
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Generator g(42);
      g.next();
      std::vector<double> y = uniform({n}, g, 0, 1, dtype, device).to_vector();
      Philox stream{42, 1};
      for (uint64_t i = 0; i < uint64_t(n); i += 97) {
        double u = dtype == DType::f64 ? stream.uniform<double>(i) : stream.uniform<float>(i);
        ASSERT_EQ(y[i], rounded(u, dtype)) << dtype << " " << i;
      }
      EXPECT_EQ(g.state().streams, 2u);
    }
}

TEST(Create, NormalElementIsLookedUpByItsIndex) {
  const int64_t n = 40001;
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Generator g(42);
      std::vector<double> y = normal({7, n / 7}, g, 0, 1, dtype, device).to_vector();
      for (uint64_t i = 0; i < y.size(); i += 97) {
        double z = Philox{42, 0}.normal(i);
        ASSERT_EQ(y[i], rounded(dtype == DType::f64 ? z : float(z), dtype)) << dtype << " " << i;
      }
    }
}

// With n = 2¹⁶ draws the mean has deviation σ/256 and the variance √2 σ²/256: five of those.
TEST(Create, MomentsOfTheDistributions) {
  const int64_t n = 1 << 16;
  auto moments = [&](const Tensor& x) {
    double mean = 0, square = 0;
    for (double v : x.to_vector()) mean += v / n, square += v * v / n;
    return std::pair(mean, square - mean * mean);
  };
  Generator g(1);
  auto [mean, variance] = moments(normal({n}, g, 3, 0.5));
  EXPECT_NEAR(mean, 3, 5 * 0.5 / 256);
  EXPECT_NEAR(variance, 0.25, 5 * 1.42 * 0.25 / 256);
  auto [middle, spread] = moments(uniform({n}, g, -1, 2));
  EXPECT_NEAR(middle, 0.5, 5 * 0.87 / 256);
  EXPECT_NEAR(spread, 0.75, 5 * 1.42 * 0.75 / 256);
  for (double v : uniform({n}, g, -1, 2).to_vector()) ASSERT_TRUE(v >= -1 && v < 2);
}

TEST(Create, R5_DrawsDifferAndTheSeedRepeatsThem) {
  Generator a(5), b(5);
  std::vector<double> first = normal({64}, a).to_vector(), second = normal({64}, a).to_vector();
  EXPECT_NE(first, second);
  EXPECT_EQ(first, normal({64}, b).to_vector());
  EXPECT_EQ(second, normal({64}, b).to_vector());
}

TEST(Create, DevicesDrawTheSameBits) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Generator here(9), there(9);
      EXPECT_EQ(normal({3, 1001}, here, 0.1, 0.02, dtype).to_vector(),
                normal({3, 1001}, there, 0.1, 0.02, dtype, device).to_vector());
      EXPECT_EQ(uniform({3, 1001}, here, -0.3, 0.4, dtype).to_vector(),
                uniform({3, 1001}, there, -0.3, 0.4, dtype, device).to_vector());
    }
}

TEST(Create, RandomTensorsNeedAFloatingTypeAndAProperRange) {
  Generator g(1);
  EXPECT_THROW(uniform({2}, g, 0, 1, DType::i64), Error);
  EXPECT_THROW(normal({2}, g, 0, 1, DType::u8), Error);
  EXPECT_THROW(uniform({2}, g, 1, 0), Error);
  EXPECT_THROW(normal({2}, g, 0, -1), Error);
  EXPECT_EQ(g.state().streams, 0u);
}

TEST(OneHot, I7_BothIdTypesGiveTheSame) {
  for (Device device : test_devices())
    for (DType dtype : {DType::f32, DType::bf16, DType::u8})
      for (DType id : {DType::i32, DType::i64}) {
        Tensor y = one_hot(tensor({2, 0, 1, 2}, {2, 2}, id, device), 3, dtype);
        EXPECT_EQ(y.shape(), Shape({2, 2, 3}));
        EXPECT_EQ(y.to_vector(), (Values{0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1}));
      }
  EXPECT_EQ(one_hot(zeros({0}, DType::i64), 3).shape(), Shape({0, 3}));
  EXPECT_THROW(one_hot(zeros({2}), 3), Error);
}

TEST(OneHot, I2_ErrorNamesPositionValueAndRange) {
  for (Device device : test_devices()) {
    for (double bad : {-1.0, 3.0}) {
      Tensor ids = tensor({0, bad, 1}, {3}, DType::i64, device);
      std::string text;
      try {
        one_hot(ids, 3);
        synchronize(device);
      } catch (const Error& e) {
        text = e.what();
      }
      std::string expected =
          "one_hot: value " + std::to_string(int(bad)) + " at position 1 is outside [0, 3)";
      EXPECT_NE(text.find(expected), std::string::npos) << text;
    }
    EXPECT_EQ(one_hot(tensor({1}, {1}, DType::i64, device), 2).to_vector(), (Values{0, 1}));
  }
}

}  // namespace
}  // namespace gradus
