#pragma once
// Packing: the operands of a matrix product, copied into the order in which the tiles read them.
//
// Where a matrix is copied anyway, transposing it and converting its elements cost little: so all
// variants of the product use the same tiles. f16 is widened to float, and so is bf16, unless the
// processor multiplies pairs of them: then two neighbours in k become one element, at twice the speed.
//
// k runs along the rows of the source or across them, and likewise for the copy:
//
//                      source     copy
//   pack_rows          along      along      strips of A
//   pack_across        across     across     strips of Aᵀ, panels of B
//   pack_transposed    along      across     panels of Bᵀ
#include <algorithm>

#include "ops/gemm_tile.h"

namespace gradus::cpu {

#if defined(__AVX512BF16__)
template <class T>
using Element = std::conditional_t<std::is_same_v<T, bf16>, Pair, Compute<T>>;
#else
template <class T>
using Element = Compute<T>;
#endif
template <class T>
inline constexpr bool kPairs = std::is_same_v<Element<T>, Pair>;
/// How many of k one element holds.
template <class T>
inline constexpr int kPerElement = kPairs<T> ? 2 : 1;

/// One vector of elements from a row along k.
template <class T>
inline Vector<Element<T>> load_along(const T* x) {
  if constexpr (kPairs<T>)
    return load_bytes<Vector<Pair>>(x);
  else
    return load(x);
}

/// One vector of elements from a row across k; of pairs, from this row and, if `both`, the next.
template <class T>
inline Vector<Element<T>> load_across(const T* x, int64_t ld, bool both) {
  if constexpr (kPairs<T>)
    return load_words(x) | (both ? load_words(x + ld) << 16 : Vector<Pair>{});
  else
    return load(x);
}

/// out (height, k): rows of x.
template <class T>
void pack_rows(int64_t k, int64_t height, const T* x, int64_t ld, Element<T>* out, int64_t stride) {
  constexpr int kStep = kLanes<Element<T>> * kPerElement<T>;
  for (int64_t i = 0; i < height; ++i, x += ld) {
    Element<T>* row = out + i * stride;
    int64_t p = 0;
    for (; p + kStep <= k; p += kStep, row += kLanes<Element<T>>) store(row, load_along(x + p));
    if (p < k) store(row, load_along(Padded(x + p, k - p).row));
  }
}

/// out (k, columns rounded up to vectors): columns of x, then zeros.
template <class T>
void pack_across(int64_t k, int64_t columns, const T* x, int64_t ld, Element<T>* out,
                 int64_t stride) {
  constexpr int kL = kLanes<Element<T>>;
  for (int64_t p = 0; p < k; p += kPerElement<T>, x += kPerElement<T> * ld, out += stride) {
    const bool both = p + 1 < k;
    int64_t j = 0;
    for (; j + kL <= columns; j += kL) store(out + j, load_across(x + j, ld, both));
    if (j == columns) continue;
    const Padded row(x + j, columns - j), next(both ? x + ld + j : x, both ? columns - j : 0);
    store(out + j, load_across(row.row, next.row - row.row, both));
  }
}

/// Transposes a square of L vectors of L lanes in log₂ L steps. Step h swaps the off-diagonal
/// h × h squares of every 2h × 2h square:
///   ⎡P Q⎤    ⎡P R⎤
///   ⎣R S⎦ →  ⎣Q S⎦      rows i and i + h, where i & h = 0
template <class E, int h = kLanes<E> / 2>
inline void transpose(Vector<E> (&x)[kLanes<E>]) {
  constexpr int kL = kLanes<E>;
  Vector<Index<E>> upper, lower;  // lanes of the pair (x_i, x_{i+h}), the second's from L on
  for (int j = 0; j < kL; ++j) {
    upper[j] = j & h ? kL + j - h : j;
    lower[j] = j & h ? kL + j : j + h;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kL; ++i)
    if (!(i & h)) {
      const Vector<E> first = x[i], second = x[i + h];
      x[i] = __builtin_shuffle(first, second, upper);
      x[i + h] = __builtin_shuffle(first, second, lower);
    }
  if constexpr (h > 1) transpose<E, h / 2>(x);
}

/// out (k, L): the transpose of x (columns ≤ L, k), then zeros. Whole squares go through registers.
template <class T>
void pack_transposed(int64_t k, int64_t columns, const T* x, int64_t ld, Element<T>* out,
                     int64_t stride) {
  using E = Element<T>;
  constexpr int kL = kLanes<E>, kStep = kL * kPerElement<T>;
  int64_t p = 0;
  for (; p + kStep <= k; p += kStep, out += kL * stride) {
    Vector<E> square[kL];
#pragma GCC unroll 16
    for (int j = 0; j < kL; ++j) square[j] = j < columns ? load_along(x + j * ld + p) : Vector<E>{};
    transpose<E>(square);
#pragma GCC unroll 16
    for (int i = 0; i < kL; ++i) store(out + i * stride, square[i]);
  }
  for (; p < k; p += kStep, out += kL * stride)
    for (int64_t j = 0; j < kL; ++j) {
      Vector<E> row{};
      const int64_t count = std::min<int64_t>(kStep, k - p);
      if (j < columns) row = load_along(Padded(x + j * ld + p, count).row);
      for (int64_t i = 0; i * kPerElement<T> < count; ++i) out[i * stride + j] = row[i];
    }
}

}  // namespace gradus::cpu
