#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

struct Result {
  Values y, dx, dgamma, dbeta;
};

Result run(bool centred, const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& dy,
           double epsilon = 1e-5) {
  x.requires_grad_(), gamma.requires_grad_(), beta.requires_grad_();
  Tensor y = centred ? layer_norm(x, gamma, beta, epsilon) : rms_norm(x, gamma, epsilon);
  y.backward(dy);
  return {y.to_vector(), x.grad().to_vector(), gamma.grad().to_vector(),
          centred ? beta.grad().to_vector() : Values{}};
}

Result by_hand(bool centred, DType t, Device device) {
  auto row = [&](Values v) { return tensor(v, {4}, t, device); };
  return run(centred, row({1, 2, 4, -3}), row({1, 0.5, -1, 2}), row({0, 0.1, 0.2, 0.3}),
             row({0.3, -0.7, 1.1, 0.2}));
}

void expect_near(const Values& got, const Values& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Inputs are rounded once, a result takes about ten roundings more; the references have 9 digits.
double tolerance(DType t) { return 5e-9 + 12 * roundoff(t); }

TEST(LayerNorm, ByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Result r = by_hand(true, t, device);
      expect_near(r.y, {0, 0.296115984, -0.976695906, -2.83785575}, tolerance(t));
      expect_near(r.dx, {0.191213085, 0.0154628692, -0.120309979, -0.0863659749}, tolerance(t));
      expect_near(r.dgamma, {0, -0.274562378, 1.2943655, -0.313785575}, tolerance(t));
      expect_near(r.dbeta, {0.3, -0.7, 1.1, 0.2}, tolerance(t));
    }
}

TEST(RmsNorm, ByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Result r = by_hand(false, t, device);
      expect_near(r.y, {0.365148128, 0.365148128, -1.46059251, -2.19088877}, tolerance(t));
      expect_near(r.dx, {0.182573967, 0.0182572117, -0.109544828, -0.0730293335}, tolerance(t));
      expect_near(r.dgamma, {0.109544438, -0.51120738, 1.60665176, -0.219088877}, tolerance(t));
    }
}

TEST(LayerNorm, GradientHasNoShareInShiftAndScale) {
  for (Device device : test_devices()) {
    Result n = by_hand(true, DType::f64, device), r = by_hand(false, DType::f64, device);
    Values normal;  // x̂, from y = γ x̂ + β
    for (size_t i = 0; i < 4; ++i)
      normal.push_back((n.y[i] - 0.1 * double(i)) / Values{1, 0.5, -1, 2}[i]);
    EXPECT_NEAR(dot(n.dx, {1, 1, 1, 1}), 0, 1e-15);
    EXPECT_NEAR(dot(n.dx, normal), -1.242600e-6, 1e-12);
    EXPECT_NEAR(dot(r.dx, {1, 2, 4, -3}), -2.921181e-6, 1e-12);
  }
}

TEST(LayerNorm, ConstantRowByHand) {  // r = 1/√ε, dx = (g − ⟨g⟩)/√ε
  for (Device device : test_devices()) {
    auto row = [&](Values v) { return tensor(v, {4}, DType::f64, device); };
    Result r = run(true, row({2, 2, 2, 2}), row({1, 1, 1, 1}), row({0, 0, 0, 0}),
                   row({0.3, -0.7, 1.1, 0.2}));
    expect_near(r.dx, {23.7170825, -292.510684, 276.699295, -7.90569415}, 1e-8);
    EXPECT_EQ(r.y, Values(4, 0.0));
  }
}

/// (rows, C) of a given mean and spread, the same for every dtype that holds f32.
Tensor large_rows(int64_t rows, int64_t C, double mean, double spread, Device device) {
  Generator g(7);
  return normal({rows, C}, g, mean, spread, DType::f32, device);
}

TEST(LayerNorm, N1_LargeMean) {
  const int64_t C = 768;
  for (Device device : test_devices())
    for (bool centred : {true, false})
      for (double mean : {100.0, 2000.0, 1e4}) {
        Tensor x = large_rows(3, C, mean, 1, device);
        Tensor gamma = large_rows(1, C, 1, 0.2, device), beta = large_rows(1, C, 0, 0.2, device);
        Tensor dy = large_rows(3, C, 0, 1, device);
        auto in = [&](DType t) {
          auto row = [&](const Tensor& p) { return cast(reshape(p, {C}), t).detach(); };
          return run(centred, cast(x, t).detach(), row(gamma), row(beta), cast(dy, t));
        };
        Result got = in(DType::f32), want = in(DType::f64);
        double error = 0, largest = 0;
        for (size_t i = 0; i < want.dx.size(); ++i) {
          EXPECT_LT(std::abs(got.y[i] - want.y[i]), 1e-3) << mean;
          error = std::max(error, std::abs(got.dx[i] - want.dx[i]));
          largest = std::max(largest, std::abs(want.dx[i]));
        }
        EXPECT_LT(error, 1e-3 * largest) << mean;
      }
}

// Entries of 4000 ± 8: a variance that is a difference of squares would be wrong in the second decimal.
TEST(LayerNorm, N1_LargeMeanOfHalfs) {
  for (Device device : test_devices())
    for (int64_t C : {768, 2048, 8192}) {
      Generator g(9);
      Tensor x = normal({3, C}, g, 4000, 8, DType::f16, device);
      auto y = [&](DType t) {
        return layer_norm(cast(x, t), full({C}, 1, t, device), zeros({C}, t, device)).to_vector();
      };
      expect_near(y(DType::f16), y(DType::f64), 2 * roundoff(DType::f16));
    }
}

TEST(LayerNorm, N2_LargeHalfs) {
  for (Device device : test_devices()) {
    auto row = [&](double v) { return full({4}, v, DType::f16, device); };
    EXPECT_EQ(layer_norm(row(40000), row(2), row(0.25)).to_vector(), Values(4, 0.25));
    EXPECT_EQ(rms_norm(row(40000), row(2)).to_vector(), Values(4, 2.0));
  }
}

TEST(LayerNorm, N3_ConstantRows) {
  const int64_t C = 768;
  for (Device device : test_devices())
    for (double value : {0.1, 3.3, 123.4, 9999.7}) {
      auto row = [&](double v) { return full({C}, v, DType::f32, device); };
      Tensor dy = reshape(large_rows(1, C, 0, 1, device), {C});
      Result r = run(true, row(value), row(1.5), row(0.5), dy);
      Values d = dy.to_vector();
      for (size_t i = 0; i < d.size(); ++i) {
        EXPECT_NEAR(r.y[i], 0.5, 1e-3) << value;
        EXPECT_TRUE(std::isfinite(r.dx[i])) << value;
        EXPECT_LE(std::abs(r.dgamma[i]), 1e-3 * std::abs(d[i])) << value;
      }
    }
}

TEST(LayerNorm, N4_EpsilonIsAddedOnceInsideTheRootInWidePrecision) {
  for (Device device : test_devices()) {
    auto row = [&](Values v) { return tensor(v, {2}, DType::f16, device); };
    Tensor one = row({1, 1}), zero = row({0, 0});
    // x = ±2⁻¹⁴, σ² = 2⁻²⁸ = 3.7e-9: with ε = 1e-8 (0 in f16) y = ±√(σ²/(σ² + ε)) = ±0.5211
    Values y = layer_norm(row({0x1p-14, -0x1p-14}), one, zero, 1e-8).to_vector();
    double want = std::sqrt(0x1p-28 / (0x1p-28 + 1e-8));
    EXPECT_NEAR(y[0], want, 4 * roundoff(DType::f16));
    EXPECT_NEAR(y[1], -want, 4 * roundoff(DType::f16));
    // population variance: (1, 3) has σ² = 1, not 2
    expect_near(layer_norm(row({1, 3}), one, zero, 0).to_vector(), {-1, 1},
                4 * roundoff(DType::f16));
  }
}

TEST(LayerNorm, N5_RankDoesNotMatter) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes)
      for (bool centred : {true, false}) {
        auto of = [&](Shape shape) {
          auto values = [&](const Shape& s, double scale) {
            Generator g(3);
            return normal(s, g, 0, scale, t, device);
          };
          return run(centred, values(shape, 1), values({8}, 2), values({8}, 1), values(shape, 0.7));
        };
        Result flat = of({6, 8});
        for (Shape shape : {Shape{2, 3, 8}, Shape{1, 2, 3, 8}}) {
          Result deep = of(shape);
          EXPECT_EQ(deep.y, flat.y);
          EXPECT_EQ(deep.dx, flat.dx);
          EXPECT_EQ(deep.dgamma, flat.dgamma);
          EXPECT_EQ(deep.dbeta, flat.dbeta);
        }
      }
}

TEST(LayerNorm, N6_ParameterGradientsOverManyRows) {
  const int64_t rows = 8192, C = 40;
  for (Device device : test_devices())
    for (bool centred : {true, false}) {
      Generator g(5);
      Tensor x = normal({rows, C}, g, 0.3, 1, DType::bf16, device);
      Tensor gamma = normal({C}, g, 1, 0.1, DType::bf16, device),
             beta = zeros({C}, DType::bf16, device);
      Tensor dy = normal({rows, C}, g, 0.2, 1, DType::bf16, device);
      auto in = [&](DType t) {
        return run(centred, cast(x, t).detach(), cast(gamma, t).detach(), cast(beta, t).detach(),
                   cast(dy, t));
      };
      Result got = in(DType::bf16), want = in(DType::f64);
      double scale = 0;
      for (double v : want.dgamma) scale = std::max(scale, std::abs(v));
      for (size_t i = 0; i < size_t(C); ++i) {
        EXPECT_LT(std::abs(got.dgamma[i] - want.dgamma[i]), 1e-2 * scale);
        if (!centred) continue;
        EXPECT_LT(std::abs(got.dbeta[i] - want.dbeta[i]), 1e-2 * std::abs(want.dbeta[i]));
      }
    }
}

TEST(LayerNorm, N7_BackwardTwiceIsTwiceTheGradient) {
  for (Device device : test_devices())
    for (bool main_grad : {false, true}) {
      auto row = [&](Values v) { return tensor(v, {4}, DType::f32, device).requires_grad_(); };
      Tensor x = row({1, 2, 4, -3}), gamma = row({1, 0.5, -1, 2}), beta = row({0, 0.1, 0.2, 0.3});
      if (main_grad)
        for (const Tensor& p : {gamma, beta}) p.set_main_grad(full({4}, NAN, DType::f32, device));
      Tensor y = layer_norm(x, gamma, beta),
             dy = tensor({0.3, -0.7, 1.1, 0.2}, {4}, DType::f32, device);
      std::vector<Values> once;
      y.backward(dy, {.retain_graph = true});
      for (const Tensor& p : {x, gamma, beta}) once.push_back(p.grad().to_vector());
      expect_near(once[1], {0, -0.274562378, 1.2943655, -0.313785575}, 1e-6);
      y.backward(dy);
      for (size_t k = 0; k < 3; ++k) {
        Values twice = (k == 0 ? x : k == 1 ? gamma : beta).grad().to_vector();
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(twice[i], 2 * once[k][i]);
      }
    }
}

TEST(LayerNorm, SixteenBitParametersAddToAWideMainGradient) {
  for (Device device : test_devices()) {
    auto row = [&](Values v) { return tensor(v, {4}, DType::bf16, device).requires_grad_(); };
    Tensor x = row({1, 2, 4, -3}), gamma = row({1, 0.5, -1, 2}), beta = row({0, 0.125, 0.25, 0.5});
    gamma.set_main_grad(zeros({4}, DType::f64, device));
    beta.set_main_grad(zeros({4}, DType::f32, device));
    layer_norm(x, gamma, beta)
        .backward(tensor({0.25, -0.75, 1.125, 0.5}, {4}, DType::bf16, device));
    // In f32, not rounded to bf16: dγ = dy x̂ with x̂ = (0, 1, 3, −4)/√6.50001
    double r = 1 / std::sqrt(6.5 + 1e-5);
    expect_near(gamma.grad().to_vector(), {0, -0.75 * r, 1.125 * 3 * r, 0.5 * -4 * r}, 1e-6);
    expect_near(beta.grad().to_vector(), {0.25, -0.75, 1.125, 0.5}, 0);
  }
}

TEST(LayerNorm, RowsOfEveryLength) {
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16})
      for (int64_t C : {1, 7, 8, 256, 768, 1000, 1024, 1536, 2048, 3000, 8192, 9000}) {
        Generator g(11);
        Tensor x = normal({5, C}, g, 1, 2, t, device), gamma = normal({C}, g, 1, 0.1, t, device);
        Tensor beta = normal({C}, g, 0, 1, t, device), dy = normal({5, C}, g, 0, 1, t, device);
        auto in = [&](DType type, Device d) {
          auto moved = [&](const Tensor& v) { return cast(to(v, d), type).detach(); };
          return run(true, moved(x), moved(gamma), moved(beta), moved(dy));
        };
        Result got = in(t, device), want = in(DType::f64, kCpu);
        // Sixteen roundings of numbers up to 4: deviations of four sigma occur.
        double most = (16 * 4 + std::sqrt(double(C))) * roundoff(t);  // sums: a walk of √n steps
        expect_near(got.y, want.y, most);
        expect_near(got.dx, want.dx, most);
        expect_near(got.dgamma, want.dgamma, most);
        expect_near(got.dbeta, want.dbeta, most);
      }
}

TEST(LayerNorm, WrongUseSaysWhatWasExpected) {
  Tensor x = zeros({2, 3}), p = zeros({3});
  EXPECT_THROW(layer_norm(x, zeros({2}), p), Error);
  EXPECT_THROW(layer_norm(x, p, zeros({3, 1})), Error);
  EXPECT_THROW(layer_norm(x, zeros({3}, DType::f64), p), Error);
  EXPECT_THROW(layer_norm(zeros({}), p, p), Error);
  EXPECT_THROW(rms_norm(x, p, -1), Error);
  try {
    rms_norm(x, zeros({4}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rms_norm: gamma is (4,) f32"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace gradus
