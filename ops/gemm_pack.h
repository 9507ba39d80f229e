#pragma once
// Packing: the operands of a matrix product, copied into the order in which the tiles read them.
//
// Where a matrix is copied anyway, transposing it and widening bf16 and f16 to float come almost for
// free: all variants of the product use the same tiles.
#include <algorithm>

#include "ops/gemm_tile.h"

namespace gradus::cpu {

/// Transposes a square of L vectors of L lanes in log₂ L steps. Step h swaps the off-diagonal
/// h × h squares of every 2h × 2h square:
///   ⎡P Q⎤    ⎡P R⎤
///   ⎣R S⎦ →  ⎣Q S⎦      rows i and i + h, where i & h = 0
template <class T, int h = kLanes<T> / 2>
inline void transpose(Vector<T> (&x)[kLanes<T>]) {
  constexpr int kL = kLanes<T>;
  Vector<Index<T>> upper,
      lower;  // lanes of the pair (x_i, x_{i+h}); those of the second count from L
  for (int j = 0; j < kL; ++j) {
    upper[j] = j & h ? kL + j - h : j;
    lower[j] = j & h ? kL + j : j + h;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kL; ++i)
    if (!(i & h)) {
      Vector<T> first = x[i], second = x[i + h];
      x[i] = __builtin_shuffle(first, second, upper);
      x[i + h] = __builtin_shuffle(first, second, lower);
    }
  if constexpr (h > 1) transpose<T, h / 2>(x);
}

/// panel (k, L) ← Xᵀ for X (columns ≤ L, k) with rows `ld` apart: L columns of a transposed B. Whole
/// squares go through registers, the rest one by one.
template <class T>
void pack_transposed(int64_t k, int64_t columns, const T* x, int64_t ld, Compute<T>* panel) {
  using Sum = Compute<T>;
  constexpr int kL = kLanes<Sum>;
  int64_t p = 0;
  for (; columns == kL && p + kL <= k; p += kL) {
    Vector<Sum> square[kL];
#pragma GCC unroll 16
    for (int j = 0; j < kL; ++j) square[j] = load(x + j * ld + p);
    transpose<Sum>(square);
#pragma GCC unroll 16
    for (int i = 0; i < kL; ++i) store(panel + (p + i) * kTileWidth<Sum>, square[i]);
  }
  for (; p < k; ++p)
    for (int64_t j = 0; j < kL; ++j)
      panel[p * kTileWidth<Sum> + j] = j < columns ? Sum(x[j * ld + p]) : Sum(0);
}

/// panel (k, kTileWidth) ← op(B), zeros beyond `columns`. b points at op(B)(0, 0) of the panel.
template <class T>
void pack_panel(bool transposed, int64_t k, int64_t columns, const T* b, int64_t ld,
                Compute<T>* panel) {
  using Sum = Compute<T>;
  constexpr int kL = kLanes<Sum>;
  for (int64_t j = 0; j < columns; j += kL) {
    const int64_t count = std::min<int64_t>(kL, columns - j);
    if (transposed)
      pack_transposed(k, count, b + j * ld, ld, panel + j);
    else if (count == kL)
      for (int64_t p = 0; p < k; ++p) store(panel + p * kTileWidth<Sum> + j, load(b + p * ld + j));
    else
      for (int64_t p = 0; p < k; ++p)
        store(panel + p * kTileWidth<Sum> + j, load_some(b + p * ld + j, count));
  }
}

/// strip (height, k), rows `stride` apart (at least k rounded up to vectors) ← rows of A.
template <class T>
void pack_rows(int64_t k, int64_t height, const T* a, int64_t ld, Compute<T>* strip,
               int64_t stride) {
  constexpr int kL = kLanes<Compute<T>>;
  for (int64_t i = 0; i < height; ++i, a += ld, strip += stride) {
    int64_t p = 0;
    for (; p + kL <= k; p += kL) store(strip + p, load(a + p));
    if (p < k) store(strip + p, load_some(a + p, k - p));
  }
}

/// strip (k, H), rows `stride` apart ← H columns of a transposed A: neighbours in each of its k rows.
template <class T, int H>
void pack_columns(int64_t k, const T* a, int64_t ld, Compute<T>* strip, int64_t stride) {
  for (int64_t p = 0; p < k; ++p, a += ld, strip += stride)
    if constexpr (std::is_same_v<T, Compute<T>>)
      std::memcpy(strip, a, H * sizeof(T));
    else
      for (int i = 0; i < H; ++i) strip[i] = a[i];
}

/// pack_columns() of 1 … kTileHeight columns: a copy of constant size is a few moves.
template <class T, int... H>
constexpr auto packs_of_heights(std::integer_sequence<int, H...>) {
  return std::array{pack_columns<T, H + 1>...};
}

template <class T>
void pack_columns(int64_t k, int64_t height, const T* a, int64_t ld, Compute<T>* strip,
                  int64_t stride) {
  static constexpr auto packs = packs_of_heights<T>(kHeights);
  packs[height - 1](k, a, ld, strip, stride);
}

}  // namespace gradus::cpu
