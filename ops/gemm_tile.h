#pragma once
// The register tile: the innermost part of the matrix product on the CPU.
//
// A tile of C, H rows by W vectors, is held in registers while p runs over k:
//
//        b_p   ┌──────┬──────┐           for p:  C_i ← C_i + a_ip b_p,   i = 0 … H − 1
//              └──────┴──────┘
//   a_0p ■     │ C_0         │           One step reads W vectors of B and H numbers of A and does
//   a_1p ■     │ C_1         │           H W fused multiply-adds (FMA). Two conditions keep the FMA
//    ⋮         │  ⋮          │           units busy every cycle:
//   a_Hp ■     │ C_H         │
//
//   reads      H + W reads for H W FMAs: the squarer the tile the fewer reads. A processor does about
//              as many of one as of the other, so H W must be well above H + W.
//   latency    an FMA takes four cycles and the next one on the same accumulator waits for it: with two
//              units, at least eight accumulators must be under way.
//
// Both ask for as many accumulators as there are registers: with 32 of them 14 × 2, + 2 for b_p and one
// for a_ip; with 16 of them 6 × 2. The tile is written in GCC's vector extension, in which the operators
// act on all lanes: the same source becomes AVX-512, AVX2, SSE or NEON by the compiler's flags. Loops with
// constant bounds are unrolled entirely, otherwise the array `sum` would live in memory.
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/dtype.h"

namespace gradus::cpu {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kTileHeight = 14;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32, kTileHeight = 6;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16, kTileHeight = 14;
#else
inline constexpr int kVectorBytes = 16, kTileHeight = 6;
#endif
inline constexpr int kTileVectors = 2;
inline constexpr std::make_integer_sequence<int, kTileHeight> kHeights{};  // 0 … kTileHeight − 1

template <class T>
struct Simd {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
/// One register full of T.
template <class T>
using Vector = typename Simd<T>::type;
template <class T>
inline constexpr int kLanes = kVectorBytes / int(sizeof(T));
template <class T>
inline constexpr int kTileWidth = kLanes<T>* kTileVectors;

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

/// Widened: a bf16 is the upper half of a float.
inline Vector<float> load(const bf16* x) {
  typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
  auto words = __builtin_convertvector(load_bytes<Halves>(x), Vector<uint32_t>) << 16;
  return bits_of<Vector<float>>(words);
}

/// Widened: by an instruction where there is one.
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

/// The first `count` numbers of a vector, then zeros; reads nothing beyond them.
template <class T>
inline Vector<Compute<T>> load_some(const T* x, int64_t count) {
  T padded[kLanes<Compute<T>>] = {};
  std::memcpy(padded, x, count * sizeof(T));
  return load(padded);
}

template <class T>
inline void store(T* x, Vector<T> v) {
  std::memcpy(x, &v, sizeof(v));
}

/// c ← value + β c, rounded to the type of c. β = 0 does not read c.
template <class T, class C>
inline void put(T value, T beta, C& c) {
  c = C(beta == 0 ? value : value + beta * T(c));
}

/// How a strip of A lies in memory: a_ip at a[i · stride + p], or at a[p · stride + i].
enum class Strip : int { rows, columns };

/// C ← α A B + β C for one tile. β = 0 does not read C.
template <class T>
struct Tile {
  int64_t k;
  const T *a, *b;
  T* c;
  int64_t stride_a, stride_b, stride_c;
  T alpha, beta;
};

template <class T, Strip kStrip, int H, int W>
void multiply(const Tile<T>& tile) {
  constexpr int kL = kLanes<T>;
  const T *a = tile.a, *b = tile.b;
  const int64_t stride = tile.stride_a;
  T* c = tile.c;
  if (tile.beta != 0)  // C is wanted at the end: fetch it meanwhile
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < W; ++j) __builtin_prefetch(c + i * tile.stride_c + j * kL, 1);

  Vector<T> sum[H][W] = {};
  for (int64_t p = 0; p < tile.k; ++p) {
    Vector<T> b_p[W];
    for (int j = 0; j < W; ++j) b_p[j] = load(b + j * kL);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) {
      T a_ip = kStrip == Strip::rows ? a[i * stride] : a[i];
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) sum[i][j] += a_ip * b_p[j];
    }
    a += kStrip == Strip::rows ? 1 : stride;
    b += tile.stride_b;
  }

#pragma GCC unroll 16
  for (int i = 0; i < H; ++i, c += tile.stride_c)
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) {
      Vector<T> value = tile.alpha * sum[i][j];
      if (tile.beta != 0) value += tile.beta * load(c + j * kL);
      store(c + j * kL, value);
    }
}

/// multiply() for 1 … kTileHeight rows, so that no row at the edge of C is computed in vain.
template <class T, Strip kStrip, int W, int... H>
constexpr auto tiles_of_heights(std::integer_sequence<int, H...>) {
  return std::array{multiply<T, kStrip, H + 1, W>...};
}
template <class T, Strip kStrip, int W>
inline constexpr auto kTiles = tiles_of_heights<T, kStrip, W>(kHeights);

/// C ← α A B + β C for a tile of `height` rows and `vectors` vectors.
template <class T>
void multiply(const Tile<T>& tile, Strip strip, int64_t height, int64_t vectors) {
  if (strip == Strip::rows)
    (vectors == 1 ? kTiles<T, Strip::rows, 1> : kTiles<T, Strip::rows, 2>)[height - 1](tile);
  else
    (vectors == 1 ? kTiles<T, Strip::columns, 1> : kTiles<T, Strip::columns, 2>)[height - 1](tile);
}

}  // namespace gradus::cpu
