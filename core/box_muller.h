#pragma once
// Two uniform words become two normal numbers [Box & Muller 1958]:
//
//   r = √(−2 ln u),   φ = 2πv        →        even = r cos φ,   odd = r sin φ
//
// since the density e^{−(a² + b²)/2} / 2π of two normals depends on the radius alone: the angle is
// uniform, and P(radius > r) = e^{−r²/2} is uniform too. u = (word + ½) / 2³² is never 0, and the
// largest |normal| is √(−2 ln 2⁻³³) = 6.76.
//
// ln, cos and sin are written out here rather than called: without a branch, loops over them
// vectorise; and since sums and products are joined by fma where, and only where, it is written,
// CPU and GPU round alike and give the same bits. The errors are about 2⁻⁵², in double; the caller
// rounds once to its type.
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace gradus {

struct NormalPair {
  double even, odd;
};

namespace detail {

/// ln u for normal u > 0. u = 2ᵉ m with √½ ≤ m < √2, and with s = (m − 1)/(m + 1), |s| < 0.172:
///   ln m = 2 artanh s = 2s (1 + s²/3 + s⁴/5 + …)        the terms left out are below 2⁻⁵⁹
GRADUS_HD inline double log_positive(double u) {
  constexpr uint64_t sqrt_half = 0x3FE6A09E667F3BCD, one = 0x3FF0000000000000;
  uint64_t bits = bits_of<uint64_t>(u);
  uint64_t biased = (bits - sqrt_half + one) >> 52;                            // e + 1023
  double e = bits_of<double>(0x4330000000000000u | biased) - (0x1p52 + 1023);  // without a cast:
  double m = bits_of<double>(bits - (biased << 52) + one);                     // AVX2 has none
  double s = (m - 1) / (m + 1), z = s * s, sum = 0;
  for (int k = 11; k >= 0; --k) sum = fma(sum, z, 1.0 / (2 * k + 1));
  return fma(e, 0.6931471805599453, 2 * s * sum);
}

/// (cos, sin) of 2π (word + ½) / 2³². The nearest quarter turn is taken off as an integer; for the
/// rest, |x| ≤ π/4, the Taylor series of order 17 are exact to 2⁻⁵⁷.
///   sin x = x (1 − x²/(2·3) (1 − x²/(4·5) (…))),   cos x = 1 − x²/(1·2) (1 − x²/(3·4) (…))
GRADUS_HD inline NormalPair cos_sin_of_turn(uint32_t word) {
  uint32_t quarter = (word + (1u << 29)) >> 30;
  double x = (double(int32_t(word - (quarter << 30))) + 0.5) * (6.283185307179586 * 0x1p-32);
  double z = x * x, c = 1, s = 1;
  for (int k = 8; k > 0; --k) {
    c = fma(z * (-1.0 / ((2 * k - 1) * (2 * k))), c, 1.0);
    s = fma(z * (-1.0 / ((2 * k) * (2 * k + 1))), s, 1.0);
  }
  s = x * s;
  double even = quarter & 1 ? s : c, odd = quarter & 1 ? c : s;
  return {(quarter + 1) & 2 ? -even : even, quarter & 2 ? -odd : odd};
}

}  // namespace detail

GRADUS_HD inline NormalPair box_muller(uint32_t a, uint32_t b) {
  double radius = sqrt(-2 * detail::log_positive((double(a) + 0.5) * 0x1p-32));
  NormalPair turn = detail::cos_sin_of_turn(b);
  return {radius * turn.even, radius * turn.odd};
}

}  // namespace gradus
