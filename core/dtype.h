#pragma once
// Element types. Arithmetic is done in Compute<T> (float for the 16-bit types) and rounded once.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <type_traits>
#if defined(__F16C__) && !defined(__CUDA_ARCH__)
#include <immintrin.h>
#endif
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "core/check.h"
#include "core/device.h"

namespace gradus {

template <class To, class From>
GRADUS_HD To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

/// bfloat16: the upper half of a float: 8 exponent bits, 8 significant bits (ε = 2⁻⁷ between
/// neighbours, 2⁻⁸ rounding error). Rounds to nearest even.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  GRADUS_HD explicit bf16(float v) {
#if defined(__CUDA_ARCH__)
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(v));  // one instruction
#else
    uint32_t u = bits_of<uint32_t>(v);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x40u;  // rounding could carry a NaN into infinity
    bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
#endif
  }
  GRADUS_HD operator float() const { return bits_of<float>(uint32_t(bits) << 16); }
};

/// IEEE half: 5 exponent bits, 11 significant bits (rounding error 2⁻¹¹), largest value 65504.
struct f16 {
  uint16_t bits;
  f16() = default;
  GRADUS_HD explicit f16(float v) {
#if defined(__CUDA_ARCH__)
    bits = __half_as_ushort(__float2half_rn(v));
#elif defined(__F16C__)
    bits = _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT);
#else
    bits = encode(v);
#endif
  }
  GRADUS_HD operator float() const {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(bits));
#elif defined(__F16C__)
    return _cvtsh_ss(bits);
#else
    return decode(bits);
#endif
  }

  /// The conversions in portable integer arithmetic, for processors without F16C.
  static uint16_t encode(float v);
  static float decode(uint16_t h);
};

enum class DType : uint8_t { f64, f32, bf16, f16, i32, i64, u8 };

/// The type arithmetic is done in: double for f64, float for f32 and narrower, else the type itself.
template <class T>
using Compute =
    std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, f16>, float, T>;

template <class T>
inline constexpr DType dtype_of = DType::u8;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;

inline bool is_floating(DType t) { return t <= DType::f16; }
inline int64_t size_of(DType t) {
  constexpr int8_t sizes[] = {8, 4, 2, 2, 4, 8, 1};
  return sizes[int(t)];
}
inline const char* name_of(DType t) {
  constexpr const char* names[] = {"f64", "f32", "bf16", "f16", "i32", "i64", "u8"};
  return names[int(t)];
}
inline std::ostream& operator<<(std::ostream& out, DType t) { return out << name_of(t); }

/// Unit roundoff u: |round(x) − x| ≤ u |x|. The measure of every tolerance in the tests.
inline double roundoff(DType t) {
  switch (t) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    default: return 0;
  }
}

/// `value` as a T, on behalf of `op`: a floating type rounds it, an integer type must hold it exactly.
template <class T>
T number_as(const char* op, double value) {
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    bool inside = value >= double(Limits::min()) && value < double(Limits::max()) + 1;
    check(inside && double(T(value)) == value, op, ": ", value, " is no ", dtype_of<T>);
  }
  return T(Compute<T>(value));
}

/// Calls f.template operator()<T>() with the C++ type of a floating dtype: one switch, then
/// straight-line code. `op` names who asked, for the error on an integer dtype.
template <class F>
decltype(auto) dispatch_floating(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f.template operator()<double>();
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<bf16>();
    case DType::f16: return f.template operator()<f16>();
    default: fail("a floating tensor is needed by ", op, ", got ", dtype);
  }
}

/// The same for i32 and i64: ids, targets, positions.
template <class F>
decltype(auto) dispatch_index(const char* op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::i32: return f.template operator()<int32_t>();
    case DType::i64: return f.template operator()<int64_t>();
    default: fail("integer indices (i32 or i64) are needed by ", op, ", got ", dtype);
  }
}

/// The same for every dtype: copies, casts, fills.
template <class F>
decltype(auto) dispatch_all(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f.template operator()<double>();
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<bf16>();
    case DType::f16: return f.template operator()<f16>();
    case DType::i32: return f.template operator()<int32_t>();
    case DType::i64: return f.template operator()<int64_t>();
    case DType::u8: break;
  }
  return f.template operator()<uint8_t>();
}

}  // namespace gradus
