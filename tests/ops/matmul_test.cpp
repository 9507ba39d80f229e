// matmul and linear beyond what the gradient check sees: where gradients are put.
#include "ops/ops.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "tests/devices.h"

namespace gradus {
namespace {

/// Uneven reals, rounded to `dtype`.
Tensor reals(const Shape& shape, DType dtype, Device device, double seed) {
  Tensor x = empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, std::sin(seed + 0.7 * double(i)));
  return to(x, device);
}

struct Expected {
  double value = 0, magnitude = 0;  // Σ and Σ |…|
  void add(double term) { value += term, magnitude += std::abs(term); }
};

/// dWᵢⱼ = Σ_r dY_ri X_rj.
Expected weight_gradient(const std::vector<double>& dY, const std::vector<double>& X, int64_t out,
                         int64_t in, int64_t i, int64_t j) {
  Expected e;
  for (int64_t r = 0; r < int64_t(X.size()) / in; ++r)
    e.add(dY[size_t(r * out + i)] * X[size_t(r * in + j)]);
  return e;
}
Expected bias_gradient(const std::vector<double>& dY, int64_t out, int64_t i) {
  Expected e;
  for (int64_t r = 0; r < int64_t(dY.size()) / out; ++r) e.add(dY[size_t(r * out + i)]);
  return e;
}

// Products of 16-bit numbers are exact in f32, and so is a main gradient that holds it once. A sum of n
// terms, each product rounded once, is off by at most (n + 1) u Σ|term|, u that of f32 [Higham 2002,
// §3.1]: rounding to 16 bits anywhere on the way would be seen. Two backwards make twice the gradient.
TEST(Linear, AddsItsGradientsToMainGradients) {
  const int64_t rows = 35, in = 24, out = 40;
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      SCOPED_TRACE(testing::Message() << device << " " << dtype);
      DType sums = dtype == DType::f64 ? DType::f64 : DType::f32;
      Tensor x = reals({5, 7, in}, dtype, device, 1), dy = reals({5, 7, out}, dtype, device, 2);
      Tensor w = reals({out, in}, dtype, device, 3).requires_grad_();
      Tensor b = reals({out}, dtype, device, 4).requires_grad_();
      w.set_main_grad(full({out, in}, NAN, sums, device));
      b.set_main_grad(full({out}, NAN, sums, device));
      for (int times : {1, 2}) {
        linear(x, w, b).backward(dy);
        auto dW = w.grad().to_vector(), db = b.grad().to_vector();
        auto X = x.to_vector(), dY = dy.to_vector();
        double bound = double(times * rows + 1) * roundoff(sums);
        for (int64_t i = 0; i < out; ++i) {
          Expected e = bias_gradient(dY, out, i);
          ASSERT_NEAR(db[size_t(i)], times * e.value, times * e.magnitude * bound) << i;
          for (int64_t j = 0; j < in; ++j) {
            e = weight_gradient(dY, X, out, in, i, j);
            ASSERT_NEAR(dW[size_t(i * in + j)], times * e.value, times * e.magnitude * bound)
                << i << ", " << j;
          }
        }
      }
    }
}

// A main gradient of another type than sums are formed in is served as well, through a tensor between.
TEST(Linear, WidensGradientsForAnF64MainGradient) {
  for (Device device : test_devices()) {
    Tensor x = reals({3, 2}, DType::f32, device, 1);
    Tensor w = reals({2, 2}, DType::f32, device, 3).requires_grad_();
    Tensor b = reals({2}, DType::f32, device, 4).requires_grad_();
    w.set_main_grad(full({2, 2}, NAN, DType::f64, device));
    b.set_main_grad(full({2}, NAN, DType::f64, device));
    linear(x, w, b).backward(full({3, 2}, 1, DType::f32, device));
    EXPECT_EQ(b.grad().to_vector(), (std::vector<double>{3, 3}));
    auto X = x.to_vector(), dW = w.grad().to_vector();
    for (size_t j : {0, 1}) EXPECT_NEAR(dW[j], X[j] + X[2 + j] + X[4 + j], 4 * 3 * 0x1p-24);
  }
}

TEST(Linear, NoRowsGiveZeroGradients) {
  for (Device device : test_devices()) {
    Tensor w = reals({2, 3}, DType::f32, device, 3).requires_grad_();
    Tensor b = reals({2}, DType::f32, device, 4).requires_grad_();
    w.set_main_grad(full({2, 3}, NAN, DType::f32, device));
    b.set_main_grad(full({2}, NAN, DType::f32, device));
    linear(zeros({0, 3}, DType::f32, device), w, b).backward(zeros({0, 2}, DType::f32, device));
    EXPECT_EQ(w.grad().to_vector(), std::vector<double>(6, 0));
    EXPECT_EQ(b.grad().to_vector(), std::vector<double>(2, 0));
  }
}

}  // namespace
}  // namespace gradus
