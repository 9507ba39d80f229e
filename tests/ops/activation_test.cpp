#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
using Function = std::function<Tensor(const Tensor&)>;

const Function kGelu = [](const Tensor& x) { return gelu(x); };
const Function kGeluTanh = [](const Tensor& x) { return gelu(x, GeluKind::tanh); };
const std::vector<Function> kActivations{tanh, sigmoid, relu, silu, kGelu, kGeluTanh};

/// The expected numbers have nine digits. A floating type adds the roundings of the formula: at most
/// eight, each of a number below 2.
void expect_close(const Tensor& got, const Values& want) {
  double tolerance = 5e-9 + 16 * roundoff(got.dtype());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got.at(int64_t(i)), want[i], tolerance * std::max(1.0, std::abs(want[i])))
        << got.dtype() << " on " << got.device() << ", element " << i;
}

/// Derivative of f at each of x, from an uneven cotangent that is divided out again.
void expect_derivative(const Function& f, const Tensor& x, const Values& want) {
  Tensor leaf = x.detach().requires_grad_();
  Values c, product;
  for (size_t i = 0; i < want.size(); ++i) c.push_back(i % 2 ? -0.5 : 1 + double(i) / 2);
  for (size_t i = 0; i < want.size(); ++i) product.push_back(c[i] * want[i]);
  expect_close(grad(f(leaf), {leaf}, tensor(c, x.shape(), x.dtype(), x.device()))[0], product);
}

/// Calls body(x) with the values in every floating type (they must be exact) on every device.
void everywhere(const Values& values, const std::function<void(const Tensor&)>& body) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      body(tensor(values, {int64_t(values.size())}, dtype, device));
}

TEST(Gelu, ReferenceValues) {
  everywhere({-2, -1, -.5, .5, 1, 2, 3}, [](const Tensor& x) {
    expect_close(gelu(x), {-0.0455002639, -0.158655254, -0.154268769, 0.345731231, 0.841344746,
                           1.95449974, 2.99595031});
    expect_derivative(kGelu, x,
                      {-0.0852318011, -0.0833154706, 0.132504875, 0.867495125, 1.08331547,
                       1.0852318, 1.01194565});
  });
}

TEST(Gelu, ReferenceValuesOfTheTanhForm) {
  everywhere({-2, -1, -.5, .5, 1, 2, 3}, [](const Tensor& x) {
    expect_close(kGeluTanh(x), {-0.0454023059, -0.158808009, -0.15428599, 0.34571401, 0.841191991,
                                1.95459769, 2.99636261});
    expect_derivative(kGeluTanh, x,
                      {-0.0860992566, -0.0829640838, 0.132630096, 0.867369904, 1.08296408,
                       1.08609926, 1.01158417});
  });
}

// Mixing the two forms would be an error of this size.
TEST(Gelu, TheTwoFormsDiffer) {
  Tensor x = tensor({2.699}, {1}, DType::f64);
  EXPECT_NEAR(std::abs(gelu(x).item() - kGeluTanh(x).item()), 4.732355e-4, 1e-9);
}

TEST(Activation, ReferenceDerivatives) {
  everywhere({-2, -.5, 0, 1, 3}, [](const Tensor& x) {
    expect_derivative(silu, x, {-0.0907842488, 0.260038813, 0.5, 0.927670512, 1.08810411});
    expect_derivative(tanh, x, {0.0706508249, 0.786447733, 1, 0.419974342, 0.00986603717});
    expect_derivative(sigmoid, x, {0.104993585, 0.235003712, 0.25, 0.196611933, 0.0451766597});
    expect_derivative(relu, x, {0, 0, 0, 1, 1});
  });
}

TEST(Activation, Values) {
  everywhere({-2, -.5, 0, 1, 3}, [](const Tensor& x) {
    Values t, s, w, r;
    for (double v : x.to_vector()) {
      t.push_back(std::tanh(v));
      s.push_back(1 / (1 + std::exp(-v)));
      w.push_back(v * s.back());
      r.push_back(std::max(v, 0.0));
    }
    expect_close(tanh(x), t);
    expect_close(sigmoid(x), s);
    expect_close(silu(x), w);
    expect_close(relu(x), r);
  });
}

TEST(Activation, N11_ReluHasDerivativeZeroAtZero) {
  everywhere({0}, [](const Tensor& x) { expect_derivative(relu, x, {0}); });
}

TEST(Activation, N12_NanPasses) {
  everywhere({NAN, 1}, [](const Tensor& x) {
    for (const Function& f : kActivations) {
      EXPECT_TRUE(std::isnan(f(x).at(0)));
      EXPECT_FALSE(std::isnan(f(x).at(1)));
    }
  });
}

TEST(Activation, N15_ShapesWithZero) {
  for (Device device : test_devices())
    for (Shape shape : {Shape{0}, Shape{2, 0}, Shape{0, 3, 4}})
      for (const Function& f : kActivations) {
        Tensor x = zeros(shape, DType::f32, device).requires_grad_(), y = f(x);
        EXPECT_EQ(y.shape(), shape);
        EXPECT_EQ(grad(y, {x}, empty(shape, DType::f32, device))[0].shape(), shape);
      }
}

// So far out each is constant or the identity, to the last bit, and its derivative is 0 or 1.
TEST(Activation, N18_SaturationIsFinite) {
  auto check_at = [](const Tensor& x) {
    double large = x.at(1);  // as this type holds it
    for (const Function& f : kActivations) {
      Tensor leaf = x.detach().requires_grad_(), y = f(leaf);
      Values dx = grad(y, {leaf}, tensor({3, -2}, {2}, x.dtype(), x.device()))[0].to_vector();
      bool linear = y.at(1) > 1;
      EXPECT_EQ(y.at(1), linear ? large : 1);
      EXPECT_EQ(dx, (Values{0, linear ? -2.0 : 0.0}));
    }
    EXPECT_EQ(tanh(x).to_vector(), (Values{-1, 1}));
    for (const Function& f : {Function(sigmoid), Function(relu), Function(silu), kGelu, kGeluTanh})
      EXPECT_EQ(f(x).at(0), 0);
  };
  everywhere({-1e4, 1e4}, check_at);
  everywhere({-1e30, 1e30}, [&](const Tensor& x) {
    if (x.dtype() != DType::f16) check_at(x);
  });
}

// Recorded and fused backward are two formulas for one thing.
TEST(Activation, RecordedBackwardEqualsTheFusedOne) {
  everywhere({-3, -1, -0.25, 0, 0.5, 2}, [](const Tensor& x) {
    for (const Function& f : kActivations) {
      Tensor leaf = x.detach().requires_grad_();
      Tensor c = tensor({1, -2, 0.5, 3, -1, 0.25}, {6}, x.dtype(), x.device());
      Values fused = grad(f(leaf), {leaf}, c)[0].to_vector();
      Tensor recorded = grad(f(leaf), {leaf}, c, {.create_graph = true})[0];
      for (int64_t i = 0; i < 6; ++i)  // about ten roundings of numbers below 4
        EXPECT_NEAR(recorded.at(i), fused[size_t(i)], 40 * roundoff(x.dtype()));
    }
  });
}

TEST(Activation, AnIntegerTensorIsAnError) {
  for (const Function& f : kActivations) EXPECT_THROW(f(arange(3)), Error);
}

}  // namespace
}  // namespace gradus
