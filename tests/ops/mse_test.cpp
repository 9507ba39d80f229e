#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

TEST(MseLoss, ByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Tensor y = tensor({1, 2, 3}, {3}, t, device).requires_grad_();
      Tensor target = tensor({0, 2, 5}, {3}, t, device).requires_grad_();
      EXPECT_EQ(mse_loss(y, target, Reduction::none).to_vector(), (Values{1, 0, 4}));
      EXPECT_EQ(mse_loss(y, target, Reduction::sum).item(), 5);
      Tensor loss = mse_loss(y, target);
      EXPECT_NEAR(loss.item(), 5 / 3.0, 1e-6);
      loss.backward(tensor({3}, {}, loss.dtype(), device));
      Values dy = y.grad().to_vector(), dt = target.grad().to_vector();
      Values want{2, 0, -4};
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(dy[i], want[i], 8 * roundoff(t));
        EXPECT_EQ(dt[i], -dy[i]);
      }
    }
}

TEST(MseLoss, L8_LossOfHalfPrecisionIsInF32) {
  for (Device device : test_devices())
    for (DType t : {DType::bf16, DType::f16}) {
      // 1.0625² = 1.12890625 has eleven digits behind the point; 300² is beyond f16.
      Tensor loss = mse_loss(tensor({1.0625}, {1}, t, device), tensor({0}, {1}, t, device));
      EXPECT_EQ(loss.dtype(), DType::f32);
      EXPECT_EQ(loss.item(), 1.12890625);
      EXPECT_EQ(mse_loss(tensor({300}, {1}, t, device), tensor({0}, {1}, t, device)).item(), 90000);
    }
}

TEST(MseLoss, WrongUseSaysWhatWasExpected) {
  EXPECT_THROW(mse_loss(zeros({2, 3}), zeros({3})), Error);
  EXPECT_THROW(mse_loss(zeros({2}), zeros({2}, DType::f64)), Error);
  EXPECT_THROW(mse_loss(zeros({2}, DType::i32), zeros({2}, DType::i32)), Error);
  EXPECT_THROW(mse_loss(zeros({0}), zeros({0})), Error);  // N16: no mean of nothing
  EXPECT_EQ(mse_loss(zeros({0}), zeros({0}), Reduction::sum).item(), 0);
}

}  // namespace
}  // namespace gradus
