#pragma once
// exp, log, tanh, sigmoid, erf and rsqrt of floats, for loops: no branch, no table and no call, so a
// loop over them becomes vector instructions without -ffast-math, and every special value is kept
// (NaN, ±∞, ±0, denormals). Errors in units in the last place (ulp) over all floats:
//
//   exp 1.1    log 1.0    tanh 2.0    erf 2.0    sigmoid 2.4    rsqrt 1.5
//
// The method is the same each time: reduce the argument to a small interval, where a short series
// is exact to float's 24 bits, and put the result together so that its last step rounds most.
// A selection such as x < a ? a : x is one instruction and lets NaN through: the compare is false.
// On a GPU they are CUDA's own functions; for double (the checks) the standard library's.
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype.h"

// A call that is not inlined stops the vectoriser, so inlining is not left to its judgement.
#define GRADUS_MATH GRADUS_HD [[gnu::always_inline]] inline

namespace gradus::math {
namespace detail {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLog2e = 1.44269504f;       // 1 / ln 2
constexpr float kLn2High = 0x1.62e4p-1f;    // the upper 15 bits of ln 2: n · kLn2High is exact
constexpr float kLn2Low = 0x1.7f7d1cp-20f;  // for |n| < 2⁹;  ln 2 = kLn2High + kLn2Low
constexpr float kRound = 0x1.8p23f;         // x + kRound has no bits behind the point: it rounds

/// a b + c, rounded once where the processor can, twice elsewhere.
GRADUS_MATH float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/// c₀ + c₁ x + c₂ x² + …  by Horner's rule.
GRADUS_MATH float polynomial(float, float c0) { return c0; }
template <class... Floats>
GRADUS_MATH float polynomial(float x, float c0, Floats... c) {
  return fma(polynomial(x, c...), x, c0);
}

GRADUS_MATH float abs(float x) { return bits_of<float>(bits_of<uint32_t>(x) & 0x7fffffffu); }
GRADUS_MATH float copy_sign(float magnitude, float sign) {
  return bits_of<float>((bits_of<uint32_t>(magnitude) & 0x7fffffffu) |
                        (bits_of<uint32_t>(sign) & 0x80000000u));
}
/// 2ⁿ for −126 ≤ n ≤ 127.
GRADUS_MATH float power_of_two(int32_t n) { return bits_of<float>(uint32_t(n + 127) << 23); }

/// eˣ = 2ⁿ (1 + p) with n = round(x / ln 2), and p = eʳ − 1 for the rest |r| ≤ ½ ln 2:
///   p = r + r² (1/2! + r/3! + … + r⁵/7!)        the next term is below 2⁻²⁵ p
struct Exp {
  int32_t n;
  float p;
};
GRADUS_MATH Exp split_exp(float x) {
  float shifted = fma(x, kLog2e, kRound), n = shifted - kRound;
  float r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  float series = polynomial(r, 1 / 2.f, 1 / 6.f, 1 / 24.f, 1 / 120.f, 1 / 720.f, 1 / 5040.f);
  return {int32_t(bits_of<uint32_t>(shifted) - bits_of<uint32_t>(kRound)), fma(r * r, series, r)};
}

/// eˣ − 1 = 2ⁿ p + (2ⁿ − 1) for |x| ≤ 80: near 0 it is p, where eˣ − 1 would cancel.
GRADUS_MATH float expm1(float x) {
  Exp e = split_exp(x);
  float power = power_of_two(e.n);
  return fma(power, e.p, power - 1);
}

}  // namespace detail

/// eˣ = 2ⁿ (1 + p). The factor 2ⁿ is applied in two halves, each of them a normal float even where
/// the result is denormal or overflows. Beyond the clamps it is 0 or ∞.
GRADUS_MATH float exp(float x) {
#if defined(__CUDA_ARCH__)
  return ::expf(x);
#else
  x = x < -105 ? -105 : x;
  x = x > 89 ? 89 : x;
  detail::Exp e = detail::split_exp(x);
  int32_t half = e.n >> 1;
  return (1 + e.p) * detail::power_of_two(half) * detail::power_of_two(e.n - half);
#endif
}

/// x = 2ᵉ (1 + f) with √½ ≤ 1 + f < √2, and with s = f/(2 + f), so that (1 + s)/(1 − s) = 1 + f:
///   ln(1 + f) = 2 artanh s = 2s + s R,   R = 2 (s²/3 + s⁴/5 + s⁶/7 + s⁸/9),   |s| < 0.172
///             = f − s (f − R)                     since 2s = f − s f:  f is exact, the rest small
GRADUS_MATH float log(float x) {
#if defined(__CUDA_ARCH__)
  return ::logf(x);
#else
  using namespace detail;
  constexpr uint32_t sqrt_half = 0x3f3504f3;
  bool tiny = x < 0x1p-126f;  // a denormal is made normal first
  uint32_t bits = bits_of<uint32_t>(tiny ? x * 0x1p23f : x);
  int32_t exponent = int32_t(bits - sqrt_half) >> 23;
  float f = bits_of<float>(bits - (uint32_t(exponent) << 23)) - 1;
  float e = float(exponent) - (tiny ? 23.f : 0.f);
  float s = f / (2 + f), z = s * s;
  float r = z * polynomial(z, 2 / 3.f, 2 / 5.f, 2 / 7.f, 2 / 9.f);
  float y = fma(e, kLn2High, f - fma(e, -kLn2Low, s * (f - r)));
  y = x == 0 ? -kInfinity : y;
  y = x < 0 ? kNan : y;
  return x < kInfinity ? y : x;  // ∞ and NaN are their own logarithms
#endif
}

/// tanh |x| = q = m/(m + 2) with m = e^{2|x|} − 1. For small m the rounding of m + 2 would be the
/// largest error; there q = h − h q with h = m/2, and q in the correction alone.
/// From |x| = 9.02 on the result rounds to 1.
GRADUS_MATH float tanh(float x) {
#if defined(__CUDA_ARCH__)
  return ::tanhf(x);
#else
  float twice = 2 * detail::abs(x);
  float m = detail::expm1(twice > 20 ? 20 : twice), q = m / (m + 2), h = 0.5f * m;
  return detail::copy_sign(m < 1 ? detail::fma(-h, q, h) : q, x);
#endif
}

/// 1/(1 + e⁻ˣ), from z = e^{−|x|}, which cannot overflow: 1/(1 + z) for x ≥ 0, else z/(1 + z). On a
/// GPU an overflow to ∞ does no harm, and the division is one instruction, good to 1 ulp.
GRADUS_MATH float sigmoid(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + ::expf(-x)));
  return y;
#else
  float z = math::exp(x < 0 ? x : -x);
  return (x < 0 ? z : 1) / (1 + z);
#endif
}

/// erf x = 2/√π ∫₀ˣ e^{−t²} dt = 1 − e^{−(x + x S(x))} for x ≥ 0, and odd. 1 + S(x) is
/// −ln(1 − erf x)/x, nearly a straight line. The coefficients of S give erf the least largest
/// relative error, 2⁻²⁸, on 0 ≤ x ≤ 3.95 (weighted Remez exchange); beyond, erf rounds to 1.
GRADUS_MATH float erf(float x) {
#if defined(__CUDA_ARCH__)
  return ::erff(x);
#else
  float a = detail::abs(x);
  a = a > 3.95f ? 3.95f : a;
  float s = detail::polynomial(a, 0.128379172f, 0.636619382f, 0.1027778305f, -0.01915306393f,
                               -1.603959927e-4f, 1.667027351e-3f, -6.328367665e-4f, 1.176412363e-4f,
                               -9.256259896e-6f);
  return detail::copy_sign(detail::expm1(detail::fma(-a, s, -a)), x);
#endif
}

/// 1/√x;   ±∞ at ±0, NaN below.
GRADUS_MATH float rsqrt(float x) {
#if defined(__CUDA_ARCH__)
  return ::rsqrtf(x);
#else
  return 1 / std::sqrt(x);
#endif
}

GRADUS_MATH double exp(double x) { return ::exp(x); }
GRADUS_MATH double log(double x) { return ::log(x); }
GRADUS_MATH double tanh(double x) { return ::tanh(x); }
GRADUS_MATH double erf(double x) { return ::erf(x); }
GRADUS_MATH double rsqrt(double x) { return 1 / ::sqrt(x); }
GRADUS_MATH double sigmoid(double x) {
  double z = ::exp(x < 0 ? x : -x);
  return (x < 0 ? z : 1) / (1 + z);
}

}  // namespace gradus::math
