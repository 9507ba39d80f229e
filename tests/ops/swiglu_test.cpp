#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

void expect_close(const Tensor& got, const Values& want, double tolerance) {
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got.at(int64_t(i)), want[i], tolerance * std::max(1.0, std::abs(want[i])))
        << got.dtype() << " on " << got.device() << ", element " << i;
}

TEST(Swiglu, ReferenceValues) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor x =
          tensor({-2, -1, 0, .5, 3, 1, -1, 2, .5, -.25}, {10}, dtype, device).requires_grad_();
      Tensor c = tensor({1, .5, -1, 2, .3}, {5}, dtype, device), y = swiglu(x);
      double tolerance = 5e-9 + 8 * roundoff(dtype);
      expect_close(y, {-0.238405844, 0.268941421, 0, 0.155614833, -0.714430595}, tolerance);
      expect_close(grad(y, {x}, c)[0],
                   {-0.0907842488, -0.0361647441, -1, 0.739961187, -0.081607808, -0.238405844,
                    -0.134470711, 0, 0.622459331, 0.857316714},
                   tolerance);
    }
}

// Rows of many lengths: whole vectors of the device, less than one, an odd rest. The composition of
// other ops rounds its steps, four of them, to the type.
TEST(Swiglu, EqualsSiluTimesU) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      for (int64_t H : {1, 3, 8, 40, 257, 1024}) {
        Generator g(3);
        Tensor x = normal({3, 2 * H}, g, 0, 1, dtype, device).requires_grad_();
        Tensor c = normal({3, H}, g, 0, 1, dtype, device);
        Tensor y = swiglu(x);
        Tensor want = silu(slice(x, 1, 0, H)) * slice(x, 1, H, 2 * H);
        double tolerance = 8 * roundoff(dtype);
        expect_close(y, want.to_vector(), tolerance);
        expect_close(grad(y, {x}, c)[0], grad(want, {x}, c)[0].to_vector(), 2 * tolerance);
      }
}

TEST(Swiglu, G6_AStridedInputGivesTheSame) {
  for (Device device : test_devices()) {
    Generator g(4);
    Tensor stored = normal({12, 5}, g, 0, 1, DType::f32, device);
    Tensor view = transpose(stored, 0, 1).detach().requires_grad_();
    Tensor dense = contiguous(transpose(stored, 0, 1)).requires_grad_();
    Tensor c = transpose(normal({6, 5}, g, 0, 1, DType::f32, device), 0, 1);
    EXPECT_EQ(swiglu(view).to_vector(), swiglu(dense).to_vector());
    EXPECT_EQ(grad(swiglu(view), {view}, c)[0].to_vector(),
              grad(swiglu(dense), {dense}, c)[0].to_vector());
  }
}

TEST(Swiglu, N18_SaturationIsFinite) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor x = tensor({-1e4, 1e4, 2, 3}, {4}, dtype, device).requires_grad_(), y = swiglu(x);
      double large = x.at(1);
      expect_close(y, {0, 3 * large}, roundoff(dtype));
      expect_close(grad(y, {x}, tensor({2, 1}, {2}, dtype, device))[0], {0, 3, 0, large},
                   roundoff(dtype));
    }
}

TEST(Swiglu, N15_ShapesWithZero) {
  for (Device device : test_devices())
    for (Shape shape : {Shape{0}, Shape{2, 0}, Shape{0, 4}}) {
      Tensor x = zeros(shape, DType::f32, device).requires_grad_(), y = swiglu(x);
      Shape half = shape;
      half[-1] /= 2;
      EXPECT_EQ(y.shape(), half);
      EXPECT_EQ(grad(y, {x}, empty(half, DType::f32, device))[0].shape(), shape);
    }
}

TEST(Swiglu, AnOddLastDimensionIsAnError) {
  EXPECT_THROW(swiglu(ones({2, 3})), Error);
  EXPECT_THROW(swiglu(ones({})), Error);
  EXPECT_THROW(swiglu(arange(4)), Error);
  EXPECT_THROW(swiglu(Tensor{}), Error);
}

}  // namespace
}  // namespace gradus
