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
// for a_ip; with 16 of them 6 × 2. Loops with constant bounds are unrolled entirely, otherwise the array
// `sum` would live in memory.
#include <array>
#include <utility>

#include "ops/gemm_simd.h"

namespace gradus::cpu {

inline constexpr int kTileVectors = 2, kTileHeight = kVectorRegisters / kTileVectors - 2;
template <class T>
inline constexpr int kTileWidth = kTileVectors* kVectorBytes / int(sizeof(T));

/// Two neighbours in k, x_p and x_{p+1}, as bf16 in one word.
using Pair = uint32_t;

/// sum ← sum + a b in each lane.
template <class T>
inline void add_product(Vector<T>& sum, T a, Vector<T> b) {
  sum += a * b;
}
#if defined(__AVX512BF16__)
/// sum ← sum + a₀ b₀ + a₁ b₁ in each lane: as many instructions as one product of floats.
inline void add_product(Vector<float>& sum, Pair a, Vector<Pair> b) {
  const auto pairs = bits_of<__m512bh>(a + Vector<Pair>{});
  sum = Vector<float>(_mm512_dpbf16_ps(__m512(sum), pairs, bits_of<__m512bh>(b)));
}
#endif

/// How a strip of A lies in memory: a_ip at a[i · stride + p], or at a[p · stride + i].
enum class Strip : int { rows, columns };

/// What a tile multiplies: A (height, k) and B (k, vectors), k counted in elements E: numbers or pairs.
template <class E>
struct Tile {
  int64_t height, vectors, k;
  Strip strip;
  const E* a;
  int64_t stride_a;
  const E* b;
  int64_t stride_b;
};

template <class T, class E, class C, Strip kStrip, int W, int H>
void multiply_tile(const Tile<E>& tile, T alpha, T beta, C* c, int64_t stride_c) {
  constexpr int kL = kLanes<T>;
  const E *a = tile.a, *b = tile.b;
  const int64_t stride_a = tile.stride_a;
  if (beta != 0)  // C is wanted at the end: fetch it meanwhile
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < W; ++j) __builtin_prefetch(c + i * stride_c + j * kL, 1);

  Vector<T> sum[H][W] = {};
  for (int64_t p = 0; p < tile.k; ++p) {
    Vector<E> b_p[W];
    for (int j = 0; j < W; ++j) b_p[j] = load_bytes<Vector<E>>(b + j * kL);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) {
      const E a_ip = kStrip == Strip::rows ? a[i * stride_a] : a[i];
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) add_product(sum[i][j], a_ip, b_p[j]);
    }
    a += kStrip == Strip::rows ? 1 : stride_a;
    b += tile.stride_b;
  }

#pragma GCC unroll 16
  for (int i = 0; i < H; ++i, c += stride_c)
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) {
      Vector<T> value = alpha * sum[i][j];
      if (beta != 0) value += beta * load(c + j * kL);
      store(c + j * kL, value);
    }
}

/// multiply_tile() for 1 … kTileHeight rows: none at the edge of C is computed in vain.
template <class T, class E, class C, Strip kStrip, int W, int... H>
constexpr auto tiles(std::integer_sequence<int, H...>) {
  return std::array{multiply_tile<T, E, C, kStrip, W, H + 1>...};
}

/// C ← α A B + β C, summed in T. β = 0 does not read C.
template <class T, class E, class C>
void multiply(const Tile<E>& tile, T alpha, T beta, C* c, int64_t stride_c) {
  constexpr std::make_integer_sequence<int, kTileHeight> heights;
  constexpr Strip rows = Strip::rows, columns = Strip::columns;
  static constexpr decltype(tiles<T, E, C, rows, 1>(heights)) table[2][kTileVectors] = {
      {tiles<T, E, C, rows, 1>(heights), tiles<T, E, C, rows, 2>(heights)},
      {tiles<T, E, C, columns, 1>(heights), tiles<T, E, C, columns, 2>(heights)}};
  table[int(tile.strip)][tile.vectors - 1][tile.height - 1](tile, alpha, beta, c, stride_c);
}

}  // namespace gradus::cpu
