#include "core/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gradus {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = 0x1p-149f;

// The functions as the ops use them: through a functor that knows no type.
struct Exp {
  static constexpr double max_ulp = 1.1;
  template <class T>
  T operator()(T x) const {
    return math::exp(x);
  }
};
struct Log {
  static constexpr double max_ulp = 1;
  template <class T>
  T operator()(T x) const {
    return math::log(x);
  }
};
struct Tanh {
  static constexpr double max_ulp = 2;
  template <class T>
  T operator()(T x) const {
    return math::tanh(x);
  }
};
struct Sigmoid {
  static constexpr double max_ulp = 2.5;
  template <class T>
  T operator()(T x) const {
    return math::sigmoid(x);
  }
};
struct Erf {
  static constexpr double max_ulp = 2;
  template <class T>
  T operator()(T x) const {
    return math::erf(x);
  }
};
struct Rsqrt {
  static constexpr double max_ulp = 1.5;
  template <class T>
  T operator()(T x) const {
    return math::rsqrt(x);
  }
};

// |got − want| in units of the distance between floats at `want`. NaN must meet NaN and a `want`
// that rounds to infinity must meet infinity.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : kInf;
  if (std::isinf(float(want)) || std::isinf(got) || std::isnan(got))
    return got == float(want) ? 0 : kInf;
  int exponent;
  std::frexp(std::max(std::abs(want), 0x1p-126), &exponent);
  return std::abs(got - want) / std::ldexp(1.0, exponent - 24);
}

template <class F>
struct MathFunction : testing::Test {};
using Functions = testing::Types<Exp, Log, Tanh, Sigmoid, Erf, Rsqrt>;
TYPED_TEST_SUITE(MathFunction, Functions);

// Every 1009th of the 2³² floats: all signs and exponents, denormals, infinities and NaNs, against
// the standard library in double. 1009 is prime, so low bits of all patterns come up.
TYPED_TEST(MathFunction, AllFloatsAgainstDouble) {
  TypeParam f;
  double worst = 0;
  float worst_at = 0;
  for (uint64_t u = 0; u < uint64_t(1) << 32; u += 1009) {
    float x = bits_of<float>(uint32_t(u));
    double error = ulps(f(x), f(double(x)));
    if (error > worst) worst = error, worst_at = x;
  }
  EXPECT_LE(worst, TypeParam::max_ulp)
      << "at x = " << worst_at << ": " << f(worst_at) << " instead of " << f(double(worst_at));
}

// The compiler makes vector code of the loop and scalar code of the call. Every fma is written out,
// so it has no freedom to round them differently.
TYPED_TEST(MathFunction, ALoopGivesWhatTheCallGives) {
  TypeParam f;
  std::vector<float> x, y;
  for (uint64_t u = 0; u < uint64_t(1) << 32; u += 1000003)
    x.push_back(bits_of<float>(uint32_t(u)));
  for (float special : {0.f, -0.f, kInf, -kInf, kNaN, kDenormal, -kDenormal}) x.push_back(special);
  y.resize(x.size());
  const float* in = x.data();
  float* out = y.data();
  for (size_t i = 0, n = x.size(); i < n; ++i) out[i] = f(in[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    volatile float one = x[i];
    float alone = f(float(one));
    if (std::isnan(alone))
      EXPECT_TRUE(std::isnan(y[i])) << x[i];
    else
      EXPECT_EQ(bits_of<uint32_t>(y[i]), bits_of<uint32_t>(alone)) << x[i];
  }
}

TYPED_TEST(MathFunction, NaNPasses) {
  EXPECT_TRUE(std::isnan(TypeParam{}(kNaN)));
  EXPECT_TRUE(std::isnan(TypeParam{}(-kNaN)));
  EXPECT_TRUE(std::isnan(TypeParam{}(double(kNaN))));
}

TEST(MathExp, SpecialValues) {
  EXPECT_EQ(math::exp(0.f), 1);
  EXPECT_EQ(math::exp(-0.f), 1);
  EXPECT_EQ(math::exp(kInf), kInf);
  EXPECT_EQ(math::exp(-kInf), 0);
  EXPECT_EQ(math::exp(88.722835f), std::exp(88.722835f));  // the last finite one
  EXPECT_TRUE(std::isfinite(math::exp(88.722835f)));
  EXPECT_EQ(math::exp(88.72284f), kInf);
  EXPECT_EQ(math::exp(1e30f), kInf);
  EXPECT_EQ(math::exp(-103.9f), kDenormal);  // 1.07 · 2⁻¹⁵⁰: rounds up
  EXPECT_EQ(math::exp(-104.f), 0);
  EXPECT_EQ(math::exp(-1e30f), 0);
}

TEST(MathLog, SpecialValues) {
  EXPECT_EQ(math::log(1.f), 0);
  EXPECT_EQ(math::log(0.f), -kInf);
  EXPECT_EQ(math::log(-0.f), -kInf);
  EXPECT_EQ(math::log(kInf), kInf);
  EXPECT_TRUE(std::isnan(math::log(-kDenormal)));
  EXPECT_TRUE(std::isnan(math::log(-1.f)));
  EXPECT_TRUE(std::isnan(math::log(-kInf)));
  EXPECT_EQ(math::log(kDenormal), float(-149 * std::log(2.0)));
}

TEST(MathTanhErfSigmoid, N18_SaturateAndStayOdd) {
  for (float big : {10.f, 1e4f, 1e38f, kInf}) {
    EXPECT_EQ(math::tanh(big), 1);
    EXPECT_EQ(math::tanh(-big), -1);
    EXPECT_EQ(math::erf(big), 1);
    EXPECT_EQ(math::erf(-big), -1);
  }
  for (float big : {120.f, 1e4f, 1e38f, kInf}) {
    EXPECT_EQ(math::sigmoid(big), 1);
    EXPECT_EQ(math::sigmoid(-big), 0);
  }
  EXPECT_EQ(math::sigmoid(0.f), 0.5f);
  EXPECT_GT(math::sigmoid(-100.f), 0);  // 3.7e-44: a denormal, where 1/(1 + e¹⁰⁰) would be 0
  for (float x : {0.f, kDenormal, 1e-30f, 0.001f, 0.3f, 1.f, 2.7f, 3.9f, 8.f, 9.1f}) {
    EXPECT_EQ(bits_of<uint32_t>(math::tanh(-x)), bits_of<uint32_t>(-math::tanh(x)));  // −0 too
    EXPECT_EQ(bits_of<uint32_t>(math::erf(-x)), bits_of<uint32_t>(-math::erf(x)));
    EXPECT_LE(math::tanh(x), 1);
    EXPECT_LE(math::erf(x), 1);
  }
}

TEST(MathRsqrt, SpecialValues) {
  EXPECT_EQ(math::rsqrt(4.f), 0.5f);
  EXPECT_EQ(math::rsqrt(0.f), kInf);
  EXPECT_EQ(math::rsqrt(-0.f), -kInf);
  EXPECT_EQ(math::rsqrt(kInf), 0);
  EXPECT_TRUE(std::isnan(math::rsqrt(-1.f)));
}

}  // namespace
}  // namespace gradus
