#pragma once
// Products with a few rows as dot products: y = x Wᵀ for one token, a matrix times a vector.
//
// Every element of W is used once or a few times: the time is that of reading W, and packing it would
// read it twice. Where k is contiguous in both operands, x_i · w_j is formed L products at a time, for
// a tile of H × W pairs (i, j) so that what is loaded is used for several of them:
//
//   sum_ij ← sum_ij + x_i[p … p + L) ⊙ w_j[p … p + L),      at the end x_i · w_j = Σ_lanes sum_ij
#include <algorithm>

#include "ops/gemm_simd.h"

namespace gradus::cpu {

inline constexpr int kFewRows = 4;    // of the operand with few rows
inline constexpr int kManyRows = 32;  // of the other, at a time

/// Σ_lanes by halves: every lane adds the one `h` away, h = L/2 … 1.
template <class T, int h = kLanes<T> / 2>
inline T sum_of_lanes(Vector<T> v) {
  Vector<Index<T>> other;
  for (int i = 0; i < kLanes<T>; ++i) other[i] = i ^ h;
  v += __builtin_shuffle(v, other);
  if constexpr (h > 1) return sum_of_lanes<T, h / 2>(v);
  return v[0];
}

/// dots (H, kManyRows), its first W columns ← x (H, k) w (W, k)ᵀ, rows stride_x and stride_w apart.
template <class T, int H, int W>
void dot_tile(int64_t k, const T* x, int64_t stride_x, const T* w, int64_t stride_w,
              Compute<T>* dots) {
  using Sum = Compute<T>;
  Vector<Sum> sum[H][W] = {};
  auto add = [&](auto&& load_at) {
    Vector<Sum> x_p[H];
#pragma GCC unroll 4
    for (int i = 0; i < H; ++i) x_p[i] = load_at(x + i * stride_x);
#pragma GCC unroll 8
    for (int j = 0; j < W; ++j) {
      const Vector<Sum> w_p = load_at(w + j * stride_w);
#pragma GCC unroll 4
      for (int i = 0; i < H; ++i) sum[i][j] += x_p[i] * w_p;
    }
  };
  int64_t p = 0;
  for (; p + kLanes<Sum> <= k; p += kLanes<Sum>) add([&](const T* row) { return load(row + p); });
  if (p < k) add([&](const T* row) { return load(Padded(row + p, k - p).row); });
  for (int i = 0; i < H; ++i)
    for (int j = 0; j < W; ++j) dots[i * kManyRows + j] = sum_of_lanes<Sum>(sum[i][j]);
}

/// The same for `height` rows, in tiles that fit the registers.
template <class T, int H>
void dot_rows(int64_t k, const T* x, int64_t stride_x, const T* w, int64_t stride_w, int64_t width,
              Compute<T>* dots) {
  constexpr int W = std::min(8, kVectorRegisters / 2 / H);
  int64_t j = 0;
  for (; j + W <= width; j += W)
    dot_tile<T, H, W>(k, x, stride_x, w + j * stride_w, stride_w, dots + j);
  for (; j < width; ++j) dot_tile<T, H, 1>(k, x, stride_x, w + j * stride_w, stride_w, dots + j);
}

/// dots (kFewRows, kManyRows), its first `height` rows and `width` columns ← x wᵀ.
template <class T>
void dot_products(int64_t k, const T* x, int64_t stride_x, int64_t height, const T* w,
                  int64_t stride_w, int64_t width, Compute<T>* dots) {
  constexpr decltype(&dot_rows<T, 1>) rows[] = {dot_rows<T, 1>, dot_rows<T, 2>, dot_rows<T, 3>,
                                                dot_rows<T, 4>};
  static_assert(std::size(rows) == kFewRows);
  rows[height - 1](k, x, stride_x, w, stride_w, width, dots);
}

}  // namespace gradus::cpu
