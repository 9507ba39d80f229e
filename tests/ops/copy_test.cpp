#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "core/allocator.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

TEST(Cast, RoundsToNearestEven) {
  for (Device device : test_devices()) {
    // 1 + 2⁻⁸ lies halfway between two bf16 numbers, 1 + 3·2⁻⁸ too; 65520 is the first f16 infinity.
    Tensor x = tensor({1 + 0x1p-8, 1 + 3 * 0x1p-8, -2.5, 65520}, {4}, DType::f32, device);
    EXPECT_EQ(cast(x, DType::bf16).to_vector(), (Values{1, 1 + 0x1p-6, -2.5, 65536}));
    EXPECT_EQ(cast(x, DType::f16).to_vector(),
              (Values{1 + 0x1p-8, 1 + 3 * 0x1p-8, -2.5, INFINITY}));
    EXPECT_EQ(cast(tensor({1.75, -1.75, 7}, {3}, DType::f32, device), DType::i64).to_vector(),
              (Values{1, -1, 7}));
    EXPECT_TRUE(std::isnan(cast(full({}, NAN, DType::f32, device), DType::bf16).item()));
  }
}

TEST(Cast, EveryTypeToEveryType) {
  for (Device device : test_devices())
    for (DType from : kAllTypes)
      for (DType to : kAllTypes) {
        Tensor x = tensor({0, 1, 2, 100, 5, 6}, {2, 3}, from, device);
        Tensor y = cast(transpose(x, 0, 1), to);
        EXPECT_EQ(y.dtype(), to);
        EXPECT_EQ(y.to_vector(), (Values{0, 100, 1, 5, 2, 6})) << from << " to " << to;
      }
}

TEST(Cast, G18_GradientHasTheTypeOfTheSource) {
  for (Device device : test_devices()) {
    Tensor x = tensor({1, 2}, {2}, DType::bf16, device).requires_grad_();
    Tensor y = cast(x, DType::f32);
    y.backward(tensor({0.3, -2}, {2}, DType::f32, device));
    EXPECT_EQ(x.grad().dtype(), DType::bf16);
    EXPECT_EQ(x.grad().to_vector(), (Values{0.30078125, -2}));  // 0.3 in bf16: 77/256
  }
}

TEST(Cast, ToItsOwnTypeIsTheTensorItself) {
  Tensor x = ones({2}).requires_grad_();
  EXPECT_TRUE(cast(x, DType::f32).is_same(x));
  EXPECT_TRUE(to(x, kCpu).is_same(x));
  EXPECT_TRUE(contiguous(x).is_same(x));
  EXPECT_FALSE(clone(x).is_same(x));
}

TEST(Cast, G5_AnIntegerResultHasNoGradient) {
  Tensor x = ones({2}).requires_grad_();
  EXPECT_FALSE(cast(x, DType::i32).requires_grad());
  EXPECT_FALSE(cast(arange(3), DType::f32).requires_grad());
}

TEST(To, G18_GradientArrivesOnTheDeviceOfTheSource) {
  for (Device device : test_devices()) {
    Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}).requires_grad_();
    Tensor y = to(transpose(x, 0, 1), device);
    EXPECT_EQ(y.device(), device);
    EXPECT_EQ(y.to_vector(), (Values{1, 4, 2, 5, 3, 6}));
    y.backward(tensor({1, 2, 3, 4, 5, 6}, {3, 2}, DType::f32, device));
    EXPECT_EQ(x.grad().device(), kCpu);
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 3, 5, 2, 4, 6}));
  }
  if (cuda_device_count() == 0) {
    EXPECT_THROW(to(ones({1}), kCuda), Error);
  }
}

TEST(Clone, M2_HoldsItsOwnElementsOnly) {
  int64_t before = memory_stats(kCpu).live;
  Tensor column;
  {
    Tensor x = full({1000, 10}, 7);
    column = clone(slice(x, 1, 3, 4));
    EXPECT_EQ(memory_stats(kCpu).live - before, 4 * (10000 + 1000));
  }
  EXPECT_EQ(memory_stats(kCpu).live - before, 4 * 1000);
  EXPECT_EQ(column.shape(), Shape({1000, 1}));
}

TEST(Clone, WritingToTheCopyLeavesTheOriginal) {
  for (Device device : test_devices()) {
    Tensor x = tensor({1, 2}, {2}, DType::f32, device), y = clone(x);
    fill_(y, 0);
    EXPECT_EQ(x.to_vector(), (Values{1, 2}));
  }
}

TEST(Contiguous, RemovesGaps) {
  for (Device device : test_devices()) {
    Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, DType::i64, device);
    Tensor y = contiguous(transpose(x, 0, 1));
    EXPECT_TRUE(y.is_contiguous());
    EXPECT_EQ(y.to_vector(), (Values{1, 4, 2, 5, 3, 6}));
    EXPECT_EQ(contiguous(expand(tensor({1, 2}, {2, 1}, DType::f16, device), {2, 3})).to_vector(),
              (Values{1, 1, 1, 2, 2, 2}));
  }
}

TEST(CopyInto, CastsAndFillsViews) {
  for (Device from : test_devices())
    for (Device into : test_devices()) {
      Tensor x = zeros({2, 3}, DType::bf16, into);
      Tensor row = tensor({1, 0.3}, {2}, DType::f64, from);
      uint32_t version = x.version();
      copy_(select(x, 1, 1), row);
      EXPECT_EQ(x.to_vector(), (Values{0, 1, 0, 0, 0.30078125, 0}));
      EXPECT_GT(x.version(), version);
      Tensor y = zeros({2}, DType::f64, into);
      copy_(y, row);
      EXPECT_EQ(y.to_vector(), (Values{1, 0.3}));
    }
}

TEST(CopyInto, OverlappingViewsReadTheOldValues) {
  for (Device device : test_devices()) {
    Tensor x = arange(6, DType::f32, device);
    copy_(slice(x, 0, 1, 6), slice(x, 0, 0, 5));
    EXPECT_EQ(x.to_vector(), (Values{0, 0, 1, 2, 3, 4}));
    Tensor y = tensor({1, 2, 3, 4}, {2, 2}, DType::f32, device);
    copy_(y, transpose(y, 0, 1));
    EXPECT_EQ(y.to_vector(), (Values{1, 3, 2, 4}));
  }
}

TEST(CopyInto, G10_WritingWhereAGradientIsRecordedIsAnError) {
  Tensor w = zeros({2}).requires_grad_();
  EXPECT_THROW(copy_(w, ones({2})), Error);
  EXPECT_EQ(w.version(), zeros({2}).version());
  EXPECT_EQ(w.to_vector(), (Values{0, 0}));
  Tensor x = zeros({2});
  EXPECT_THROW(copy_(x, ones({2}).requires_grad_()), Error);  // its history would be cut
  EXPECT_EQ(x.to_vector(), (Values{0, 0}));
  NoGrad guard;
  copy_(w, ones({2}));
  EXPECT_EQ(w.to_vector(), (Values{1, 1}));
}

TEST(CopyInto, E2_AWrongShapeChangesNothing) {
  Tensor x = zeros({2, 3});
  uint32_t version = x.version();
  EXPECT_THROW(copy_(x, ones({3, 2})), Error);
  EXPECT_THROW(copy_(x, ones({3})), Error);
  EXPECT_EQ(x.version(), version);
  EXPECT_EQ(x.to_vector(), Values(6, 0.0));
}

}  // namespace
}  // namespace gradus
