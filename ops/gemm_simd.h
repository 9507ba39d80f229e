#pragma once
// Vectors: one register full of numbers, in GCC's vector extension, in which operators act on all lanes.
// The same source becomes AVX-512, AVX2, SSE or NEON by the compiler's flags.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"

namespace gradus::cpu {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32, kVectorRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16, kVectorRegisters = 32;
#else
inline constexpr int kVectorBytes = 16, kVectorRegisters = 16;
#endif

template <class T>
struct Simd {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename Simd<T>::type;
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));  // as many as floats
template <class T>
inline constexpr int kLanes = kVectorBytes / int(sizeof(T));
/// What numbers the lanes in a shuffle of T.
template <class T>
using Index = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

template <class V>
inline V load_bytes(const void* x) {
  V v;
  std::memcpy(&v, x, sizeof(v));
  return v;
}
inline Vector<float> load(const float* x) { return load_bytes<Vector<float>>(x); }
inline Vector<double> load(const double* x) { return load_bytes<Vector<double>>(x); }

/// Each bf16 in a word of its own.
inline Vector<uint32_t> load_words(const bf16* x) {
  return __builtin_convertvector(load_bytes<Halves>(x), Vector<uint32_t>);
}
/// Widened: a bf16 is the upper half of a float.
inline Vector<float> load(const bf16* x) { return bits_of<Vector<float>>(load_words(x) << 16); }

/// Widened, by an instruction where there is one.
inline Vector<float> load(const f16* x) {
#if defined(__AVX512F__)
  return Vector<float>(_mm512_maskz_cvtph_ps(0xffff, load_bytes<__m256i>(x)));
#elif defined(__AVX__) && defined(__F16C__)
  return Vector<float>(_mm256_cvtph_ps(load_bytes<__m128i>(x)));
#else
  Vector<float> v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = x[i];
  return v;
#endif
}

template <class T>
inline void store(T* x, Vector<T> v) {
  std::memcpy(x, &v, sizeof(v));
}
/// Rounded as bf16(float) does; the instruction makes zero of subnormal numbers.
inline void store(bf16* x, Vector<float> v) {
#if defined(__AVX512BF16__)
  const auto halves = _mm512_cvtneps_pbh(__m512(v));
#else
  const auto u = bits_of<Vector<uint32_t>>(v);
  const auto rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, nan = (u >> 16) | 0x40u;
  const auto words = (u & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
  const auto halves = __builtin_convertvector(words, Halves);
#endif
  std::memcpy(x, &halves, sizeof(halves));
}
/// Rounded, by an instruction where there is one.
inline void store(f16* x, Vector<float> v) {
#if defined(__AVX512F__)
  const auto halves = _mm512_maskz_cvtps_ph(0xffff, __m512(v), _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(x, &halves, sizeof(halves));
#elif defined(__AVX__) && defined(__F16C__)
  const auto halves = _mm256_cvtps_ph(__m256(v), _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(x, &halves, sizeof(halves));
#else
  for (int i = 0; i < kLanes<float>; ++i) x[i] = f16(v[i]);
#endif
}

/// The first `count` numbers of x in front of zeros: to load the end of a row, reading nothing beyond.
template <class T>
struct Padded {
  T row[kLanes<T>] = {};
  Padded(const T* x, int64_t count) { std::memcpy(row, x, count * sizeof(T)); }
};

/// c ← value + β c, rounded to the type of c. β = 0 does not read c.
template <class T, class C>
inline void put(T value, T beta, C& c) {
  c = C(beta == 0 ? value : value + beta * T(c));
}

}  // namespace gradus::cpu
