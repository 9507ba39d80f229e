#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

TEST(Compare, AllSixInEveryType) {
  for (Device device : test_devices())
    for (DType dtype : kAllTypes) {
      Tensor a = tensor({1, 2, 3}, {3}, dtype, device), b = tensor({2}, {1}, dtype, device);
      EXPECT_EQ(equal(a, b).to_vector(), (Values{0, 1, 0}));
      EXPECT_EQ(not_equal(a, b).to_vector(), (Values{1, 0, 1}));
      EXPECT_EQ(less(a, b).to_vector(), (Values{1, 0, 0}));
      EXPECT_EQ(less_equal(a, b).to_vector(), (Values{1, 1, 0}));
      EXPECT_EQ(greater(a, b).to_vector(), (Values{0, 0, 1}));
      EXPECT_EQ(greater_equal(a, b).to_vector(), (Values{0, 1, 1}));
      EXPECT_EQ(equal(a, b).dtype(), DType::u8);
    }
}

TEST(Compare, NanIsUnorderedAndZerosAreEqual) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor a = tensor({NAN, 1, NAN, -0.0}, {4}, dtype, device);
      Tensor b = tensor({1, NAN, NAN, 0.0}, {4}, dtype, device);
      EXPECT_EQ(equal(a, b).to_vector(), (Values{0, 0, 0, 1}));
      EXPECT_EQ(not_equal(a, b).to_vector(), (Values{1, 1, 1, 0}));
      EXPECT_EQ(less(a, b).to_vector(), (Values{0, 0, 0, 0}));
      EXPECT_EQ(less_equal(a, b).to_vector(), (Values{0, 0, 0, 1}));
      EXPECT_EQ(greater(a, b).to_vector(), (Values{0, 0, 0, 0}));
      EXPECT_EQ(greater_equal(a, b).to_vector(), (Values{0, 0, 0, 1}));
    }
}

TEST(Compare, LargeIntegersAreNotRounded) {
  Tensor a = arange(1, DType::i64);
  a.data<int64_t>()[0] = (int64_t(1) << 53) + 1;
  EXPECT_EQ(greater(a, full({1}, 0x1p53, DType::i64)).item(), 1);
}

TEST(Compare, NeverRequiresAGradient) {
  Tensor a = ones({2}).requires_grad_();
  EXPECT_FALSE(less(a, a).requires_grad());
  EXPECT_FALSE(greater_equal(a * 2, a).requires_grad());
}

TEST(Compare, I8_MixedOperandsAreAnErrorNamingBoth) {
  std::string text;
  try {
    less(ones({2, 3}), ones({2, 3}, DType::f64));
  } catch (const Error& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("less"), std::string::npos) << text;
  EXPECT_NE(text.find("(2, 3) f32"), std::string::npos) << text;
  EXPECT_NE(text.find("(2, 3) f64"), std::string::npos) << text;
  EXPECT_THROW(less(ones({2, 3}), ones({2, 4})), Error);
}

TEST(Where, ValuesInEveryTypeWithBroadcasting) {
  for (Device device : test_devices())
    for (DType dtype : kAllTypes) {
      Tensor m = tensor({1, 0, 7}, {3}, DType::u8, device);  // anything but 0 is true
      Tensor a = tensor({1, 2}, {2, 1}, dtype, device), b = tensor({5}, {}, dtype, device);
      Tensor y = where(m, a, b);
      EXPECT_EQ(y.shape(), Shape({2, 3}));
      EXPECT_EQ(y.to_vector(), (Values{1, 5, 1, 2, 5, 2}));
      EXPECT_EQ(masked_fill(a, m, 9).to_vector(), (Values{9, 1, 9, 9, 2, 9}));
    }
}

TEST(Where, G1_GradientsHaveTheShapesOfTheInputs) {
  for (Device device : test_devices()) {
    Tensor m = tensor({1, 0, 1}, {3}, DType::u8, device);
    Tensor a = ones({2, 1}, DType::f64, device).requires_grad_();
    Tensor b = ones({}, DType::f64, device).requires_grad_();
    Tensor c = tensor({1, 2, 4, 8, 16, 32}, {2, 3}, DType::f64, device);
    Tensors d = grad(where(m, a, b), {a, b}, c);
    EXPECT_EQ(d[0].shape(), Shape({2, 1}));
    EXPECT_EQ(d[0].to_vector(), (Values{5, 40}));
    EXPECT_EQ(d[1].shape(), Shape());
    EXPECT_EQ(d[1].item(), 18);
    Tensor da = grad(masked_fill(a, m, 9), {a}, c)[0];
    EXPECT_EQ(da.to_vector(), (Values{2, 16}));
  }
}

TEST(Where, N13_TheOtherSideGetsExactlyZero) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      for (double bad : {double(NAN), double(INFINITY)}) {
        Tensor m = tensor({1, 0}, {2}, DType::u8, device);
        Tensor a = ones({2}, dtype, device).requires_grad_();
        Tensor b = tensor({bad, 1}, {2}, dtype, device).requires_grad_();
        EXPECT_EQ(where(m, a, b).to_vector(), (Values{1, 1}));
        Tensors d = grad(where(m, a, b), {a, b}, tensor({bad, 2}, {2}, dtype, device));
        EXPECT_EQ(std::isnan(bad), std::isnan(d[0].at(0)));
        EXPECT_EQ(d[0].at(1), 0);
        EXPECT_EQ(d[1].to_vector(), (Values{0, 2}));
        EXPECT_EQ(masked_fill(b, m, 3).to_vector(), (Values{3, 1}));
        EXPECT_EQ(
            grad(masked_fill(b, m, 3), {b}, tensor({bad, 2}, {2}, dtype, device))[0].to_vector(),
            (Values{0, 2}));
      }
}

TEST(Where, MaskedFillTakesInfinity) {
  for (Device device : test_devices()) {
    Tensor m = tensor({1, 0}, {2}, DType::u8, device);
    EXPECT_EQ(masked_fill(ones({2}, DType::bf16, device), m, -INFINITY).to_vector(),
              (Values{-INFINITY, 1}));
  }
}

TEST(Where, I8_WrongOperandsAreErrors) {
  Tensor m = ones({2}, DType::u8), x = ones({2});
  EXPECT_THROW(where(x, x, x), Error);                      // the mask is no u8
  EXPECT_THROW(where(m, x, ones({2}, DType::f64)), Error);  // mixed types
  EXPECT_THROW(where(m, x, ones({3})), Error);              // shapes
  EXPECT_THROW(where(m, x, Tensor{}), Error);
  EXPECT_THROW(where(Tensor{}, x, x), Error);
  EXPECT_THROW(masked_fill(x, arange(2), 0), Error);
  EXPECT_THROW(masked_fill(arange(2), m, 1.5), Error);  // no i64
}

TEST(Where, N15_ShapesWithZero) {
  for (Device device : test_devices()) {
    Tensor x = zeros({0, 3}, DType::f32, device).requires_grad_();
    Tensor m = zeros({3}, DType::u8, device), y = where(m, x, x);
    EXPECT_EQ(y.shape(), Shape({0, 3}));
    EXPECT_EQ(grad(y, {x}, empty({0, 3}, DType::f32, device))[0].shape(), Shape({0, 3}));
    EXPECT_EQ(less(x, x).shape(), Shape({0, 3}));
  }
}

}  // namespace
}  // namespace gradus
