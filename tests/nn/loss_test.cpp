#include "nn/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/devices.h"

namespace gradus::nn {
namespace {

/// Logits (n, 2) whose cross-entropy with target 0 is `loss`: log(1 + e^z) = loss.
Tensor logits_of_loss(int64_t n, double loss, DType dtype, Device device) {
  Tensor z = zeros({n, 2}, dtype, device);
  fill_(select(z, 1, 1), std::log(std::expm1(loss)));
  return z.requires_grad_();
}

TEST(Loss, P6_MeanOverMicroBatchesWeighsTargetsAlike) {
  for (Device device : test_devices()) {
    Tensor a = logits_of_loss(512, 10, DType::f64, device),
           b = logits_of_loss(511, 2, DType::f64, device);
    Tensor one_target = full({512}, -100, DType::i32, device);
    one_target.set(77, 0);
    LossSum x = cross_entropy_sum(a, one_target);
    LossSum y = cross_entropy_sum(b, zeros({511}, DType::i32, device));
    EXPECT_EQ(x.count.item(), 1);
    EXPECT_EQ(y.count.item(), 511);
    LossSum both{x.sum + y.sum, x.count + y.count};
    both.mean().backward();
    EXPECT_NEAR(both.mean().item(), 2.015625, 1e-12);
    EXPECT_NEAR(a.grad().at(2 * 77), -(1 - std::exp(-10)) / 512, 1e-15);  // p − 1 with p = e^−loss
    EXPECT_NEAR(b.grad().at(0), -(1 - std::exp(-2)) / 512, 1e-15);
  }
}

TEST(Loss, P7_NoTargetsGiveZeroAndNoGradient) {
  Tensor z = logits_of_loss(4, 3, DType::f32, kCpu);
  LossSum l = cross_entropy_sum(z, full({4}, -100, DType::i64));
  l.mean().backward();
  EXPECT_EQ(l.mean().item(), 0);
  EXPECT_EQ(l.count.item(), 0);
  EXPECT_EQ(z.grad().to_vector(), std::vector<double>(8, 0));
}

TEST(Loss, MaskedMeanLeavesOutWhatIsHidden) {
  for (Device device : test_devices()) {
    Tensor l = tensor({1.4401897, 0.342349582, NAN}, {3}, DType::f64, device).requires_grad_();
    Tensor mean = masked_sum(l, tensor({1, 1, 0}, {3}, DType::u8, device)).mean();
    mean.backward();
    EXPECT_NEAR(mean.item(), 0.89126964, 1e-8);
    EXPECT_EQ(l.grad().to_vector(), (std::vector<double>{0.5, 0.5, 0}));
  }
}

TEST(Loss, MaskedMeanWithWeights) {
  Tensor l = tensor({4, 1}, {2}, DType::f32).requires_grad_();
  Tensor mean = masked_sum(l, tensor({0.5, 1.5}, {2})).mean();
  mean.backward();
  EXPECT_EQ(mean.item(), 1.75);
  EXPECT_EQ(l.grad().to_vector(), (std::vector<double>{0.25, 0.75}));
}

TEST(Loss, MaskedMeanOfNothingIsZero) {
  Tensor l = tensor({4, NAN}, {2}, DType::f32).requires_grad_();
  Tensor mean = masked_sum(l, zeros({2})).mean();
  mean.backward();
  EXPECT_EQ(mean.item(), 0);
  EXPECT_EQ(l.grad().to_vector(), (std::vector<double>{0, 0}));
  EXPECT_THROW(masked_sum(l, zeros({3})), Error);
}

}  // namespace
}  // namespace gradus::nn
