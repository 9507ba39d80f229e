// Newton–Schulz against its exact meaning: each singular value s becomes f(s/‖s‖), f being the
// composition of the scalar polynomials a x + b x³ + c x⁵.
#include "optim/newton_schulz.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

constexpr Polynomials kAll[] = {
    Polynomials::simple, Polynomials::quintic, Polynomials::polar_express, Polynomials::cans,
    Polynomials::aol,    Polynomials::cubic5,  Polynomials::deepseekv4};

double f(const NewtonSchulz& method, double x) {
  for (int i = 0; i < method.steps; ++i) {
    const auto [a, b, c] = coefficients_of(method, i);
    x = a * x + b * x * x * x + c * x * x * x * x * x;
  }
  return x;
}

TEST(NewtonSchulz, PolynomialsMapSingularValuesAsPublished) {
  const struct {
    Polynomials set;
    int steps;
    double at[4];  // f(0.01), f(0.1), f(0.5), f(1), six digits
  } table[] = {{Polynomials::quintic, 5, {1.018025, 1.019050, 0.985869, 0.978346}},
               {Polynomials::simple, 5, {0.698917, 0.712120, 0.765439, 0.696436}},
               {Polynomials::polar_express, 5, {1.066024, 0.874442, 0.933330, 1.027297}},
               {Polynomials::cans, 5, {1.113169, 0.916309, 1.096414, 1.005069}},
               {Polynomials::cubic5, 5, {1.021623, 0.801990, 1.097072, 0.774106}},
               {Polynomials::deepseekv4, 10, {1.000019, 1.000061, 1.000163, 1.000014}},
               {Polynomials::aol, 4, {0.865884, 1.003879, 1.007487, -0.993521}}};
  const double x[] = {0.01, 0.1, 0.5, 1};
  for (const auto& row : table)
    for (int i = 0; i < 4; ++i)
      EXPECT_NEAR(f({row.set, row.steps}, x[i]), row.at[i], 5.1e-7) << int(row.set) << " " << x[i];
  const NewtonSchulz converged{Polynomials::polar_express, 8};
  for (double s : {0.01, 0.1, 0.6, 0.8}) EXPECT_NEAR(f(converged, s), 1, 5e-6);
}

/// Orthonormal columns: Gram–Schmidt on random ones, twice.
std::vector<std::vector<double>> orthonormal(int64_t count, int64_t n, Generator& random) {
  std::vector<std::vector<double>> basis;
  for (int64_t k = 0; k < count; ++k) {
    std::vector<double> v = normal({n}, random, 0, 1, DType::f64).to_vector();
    for (int pass = 0; pass < 2; ++pass)
      for (const auto& b : basis) {
        double dot = 0;
        for (int64_t i = 0; i < n; ++i) dot += v[size_t(i)] * b[size_t(i)];
        for (int64_t i = 0; i < n; ++i) v[size_t(i)] -= dot * b[size_t(i)];
      }
    double length = 0;
    for (double x : v) length += x * x;
    for (double& x : v) x /= std::sqrt(length);
    basis.push_back(v);
  }
  return basis;
}

/// Σ_k s_k u_k v_kᵀ.
Tensor matrix_of(const std::vector<double>& s, const std::vector<std::vector<double>>& u,
                 const std::vector<std::vector<double>>& v, Device device) {
  const int64_t rows = int64_t(u[0].size()), columns = int64_t(v[0].size());
  std::vector<double> values(size_t(rows * columns));
  for (size_t k = 0; k < s.size(); ++k)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        values[size_t(i * columns + j)] += s[k] * u[k][size_t(i)] * v[k][size_t(j)];
  return tensor(values, {rows, columns}, DType::f64, device);
}

TEST(NewtonSchulz, MapsEachSingularValueAlone) {
  Generator random(4);
  for (Device device : test_devices())
    for (auto [rows, columns] : {std::pair{4, 6}, {6, 4}, {5, 5}, {1, 7}, {40, 30}}) {
      const int64_t n = std::min(rows, columns);
      const auto u = orthonormal(n, rows, random), v = orthonormal(n, columns, random);
      std::vector<double> s;
      double norm = 0;
      for (int64_t k = 0; k < n; ++k) s.push_back(2.5 / double(1 + k)), norm += s.back() * s.back();
      norm = std::sqrt(norm);
      for (Polynomials set : kAll) {
        const NewtonSchulz method{set, 5};
        std::vector<double> mapped;
        for (double x : s) mapped.push_back(f(method, x / norm));
        const Tensor got = orthogonalize(matrix_of(s, u, v, device), method, DType::f64);
        const Tensor want = matrix_of(mapped, u, v, kCpu);
        ASSERT_EQ(got.shape(), want.shape());
        for (int64_t i = 0; i < want.numel(); ++i)
          ASSERT_NEAR(got.at(i), want.at(i), 1e-12) << int(set) << " " << rows << "×" << columns;
      }
    }
}

// The direction alone counts: no stall for tiny gradients, no overflow for huge ones.
TEST(NewtonSchulz, TheScaleDoesNotMatter) {
  Generator random(5);
  for (Device device : test_devices())
    for (DType dtype : {DType::f64, DType::f32}) {
      const Tensor g = normal({6, 9}, random, 0, 1, dtype, device);
      const Tensor want = orthogonalize(g, {}, dtype);
      const double limits = dtype == DType::f32 ? 1e-30 : 1e-150;
      for (double scale : {1e-12, 1e12, limits, 1 / limits}) {
        const Tensor got = orthogonalize(mul(g, scale), {}, dtype);
        for (int64_t i = 0; i < want.numel();
             ++i)  // 5 steps of sums of 9, derivative of f below 4⁵
          ASSERT_NEAR(got.at(i), want.at(i), 2000 * roundoff(dtype)) << dtype << " " << scale;
      }
      EXPECT_EQ(orthogonalize(zeros({3, 2}, dtype, device), {}, dtype).to_vector(),
                std::vector<double>(6, 0));
    }
}

TEST(NewtonSchulz, ProductsMayBeNarrower) {
  Generator random(6);
  for (Device device : test_devices()) {
    const Tensor g = normal({16, 24}, random, 0, 1, DType::f32, device);
    const Tensor wide = orthogonalize(g, {}, DType::f32);
    const Tensor narrow = orthogonalize(g, {}, DType::bf16);
    EXPECT_EQ(narrow.dtype(), DType::bf16);
    double off = 0, all = 0;
    for (int64_t i = 0; i < wide.numel(); ++i)
      off += std::pow(wide.at(i) - narrow.at(i), 2), all += std::pow(wide.at(i), 2);
    EXPECT_LT(std::sqrt(off / all), 0.05);  // bf16 has 8 bits, and each step triples an error
  }
}

// The flip that the warning is about: a matrix of rank one is turned round.
TEST(NewtonSchulz, AolTurnsADominantDirectionRound) {
  const Tensor g = tensor({1, 2, 2, 4}, {2, 2}, DType::f64);
  EXPECT_LT(orthogonalize(g, {Polynomials::aol, 4}, DType::f64).at(3), 0);
  EXPECT_GT(orthogonalize(g, {}, DType::f64).at(3), 0);
  EXPECT_NE(warning_of(polynomials_named("aol")), "");
  EXPECT_EQ(warning_of(polynomials_named("quintic")), "");
}

TEST(NewtonSchulz, WrongInputIsAnError) {
  const Tensor g = ones({2, 2});
  EXPECT_THROW(orthogonalize(ones({2}), {}, DType::f32), Error);
  EXPECT_THROW(orthogonalize(ones({2, 2}, DType::bf16), {}, DType::bf16), Error);
  EXPECT_THROW(orthogonalize(g, {Polynomials::cubic5, 4}, DType::f32), Error);
  EXPECT_THROW(orthogonalize(g, {Polynomials::quintic, 0}, DType::f32), Error);
  EXPECT_THROW(orthogonalize(g, {Polynomials(99), 5}, DType::f32), Error);
  EXPECT_THROW(polynomials_named("septic"), Error);
}

}  // namespace
}  // namespace gradus::optim
