#include "core/dtype.h"

namespace gradus {

// binary16: sign 1, exponent 5 (bias 15), fraction 10.   binary32: sign 1, exponent 8 (bias 127), 23.
uint16_t f16::encode(float v) {
  uint32_t u = bits_of<uint32_t>(v);
  uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);  // NaN
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // ≥ 65520 rounds to infinity
  if (magnitude < 0x38800000u) {  // below 2⁻¹⁴: subnormal. Adding ½ aligns the fraction and rounds it.
    float aligned = bits_of<float>(magnitude) + 0.5f;
    return uint16_t(sign | (bits_of<uint32_t>(aligned) - 0x3f000000u));
  }
  uint32_t odd = (magnitude >> 13) & 1u;
  return uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

float f16::decode(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000u) << 16, rest = h & 0x7fffu;
  if (rest >= 0x7c00u) return bits_of<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest < 0x400u) return (sign ? -1.0f : 1.0f) * float(rest) * 0x1p-24f;
  return bits_of<float>(sign | ((rest << 13) + 0x38000000u));
}

}  // namespace gradus
