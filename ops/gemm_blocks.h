#pragma once
// The matrix product on the CPU, in blocks that stay in the caches [Goto & van de Geijn 2008].
//
// An element of A is used n times, one of B m times. The product is fast if they are still near the
// registers at the next use. From the outside inwards:
//
//   for a block of k, a block of columns:    pack B (kDepth, kBlockWidth)             stays in L2
//     for a strip of rows:                   A (kTileHeight, kDepth)                  stays in L1
//       for a panel of the block:            B (kDepth, kTileWidth)                   flows L2 → L1
//         the tile (gemm_tile.h):            C (kTileHeight, kTileWidth)              in registers
//
//              n                         k                   n
//        ┌─────┬──────┐             ┌────────┐        ┌─────┬─┬─┬────┐
//        │     │      │             │        │        │     │█│ │    │ k    a block of B,
//      m ├─────■──────┤  tile  =    ╞════════╡ strip  │     │█│ │    │      █ one of its panels
//        │     │      │             │        │        │     │█│ │    │
//        └─────┴──────┘             └────────┘        └─────┴─┴─┴────┘
//
// For floats and AVX-512: a step of the tile takes 28 FMAs, 28 cycles or 14, and reads 128 bytes of the
// panel; L2 delivers 32 to 64 bytes a cycle. The 14 numbers of the strip serve 14 · 512 FMAs.
//
// What is packed. B, if it is transposed or used by many strips: a packed panel is one stream of memory,
// and without it each of the kDepth rows is a TLB entry of its own. A, if it is transposed: then the
// tile's numbers lie in kDepth rows; otherwise it reads rows where they are, unless they lie a multiple
// of 2 KiB apart, where all of them fall on the same few lines of L1. And both if they are bf16 or f16.
#include <algorithm>
#include <memory>

#include "ops/gemm.h"
#include "ops/gemm_pack.h"
#include "ops/gemm_tile.h"

namespace gradus::cpu {

// The sizes of a block, in elements; kBlockDepth in numbers, of which an element holds one or two.
template <class E>
inline constexpr int64_t kDepth = 1024 / sizeof(E);
template <class E>
inline constexpr int64_t kBlockWidth = 512 - 512 % kTileWidth<E>;
template <class T>
inline constexpr int64_t kBlockDepth = kPerElement<T> * 1024 / sizeof(Element<T>);
inline constexpr int64_t kStripsWorthPacking = 10;

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  /// Part i of `parts`, whose sizes differ by at most one.
  Range part(int64_t i, int64_t parts) const {
    return {begin + size() * i / parts, begin + size() * (i + 1) / parts};
  }
};

/// What a thread packs into, allocated once. Elements E, sums T.
template <class T, class E>
struct Scratch {
  static constexpr int64_t kRow = kDepth<E> + 64 / sizeof(E);  // one line more: see "2 KiB" above
  static constexpr int64_t kColumns = (kTileHeight + kLanes<E> - 1) & -kLanes<E>;  // whole vectors
  alignas(64) E rows[kTileHeight][kRow];
  alignas(64) E columns[kDepth<E>][kColumns];
  alignas(64) E panels[kBlockWidth<E> / kTileWidth<E>][kDepth<E>][kTileWidth<E>];
  alignas(64) T tile[kTileHeight][kTileWidth<T>];

  static Scratch& of_this_thread() {
    thread_local auto scratch = std::make_unique<Scratch>();
    return *scratch;
  }
};

/// A rectangle of C, computed by one thread.
template <class T, class TC>
class Rectangle {
  using Sum = Compute<T>;
  using E = Element<T>;
  static constexpr bool kAsItIs = std::is_same_v<T, E>;
  static constexpr int64_t kWidth = kTileWidth<E>;

  /// An operand of the tile: where it begins, and how far apart its rows are.
  struct Operand {
    const E* at;
    int64_t stride;
  };

  const Gemm& g_;
  const T *a_, *b_;
  TC* c_;
  Range rows_, columns_;
  Scratch<Sum, E>& scratch_ = Scratch<Sum, E>::of_this_thread();

 public:
  Rectangle(const Gemm& g, const T* a, const T* b, TC* c, Range rows, Range columns)
      : g_(g), a_(a), b_(b), c_(c), rows_(rows), columns_(columns) {}

  void compute() {
    for (int64_t j = columns_.begin; j < columns_.end; j += kBlockWidth<E>)
      for (int64_t p = 0; p < g_.k; p += kBlockDepth<T>)
        block({p, std::min(p + kBlockDepth<T>, g_.k)},
              {j, std::min(j + kBlockWidth<E>, columns_.end)});
  }

 private:
  /// C(rows, columns) ← α A(rows, k) B(k, columns) + β C, or + C after the first block of k.
  void block(Range k, Range columns) {
    Operand panels[kBlockWidth<E> / kWidth];
    for (int64_t j = columns.begin, x = 0; j < columns.end; j += kWidth, ++x)
      panels[x] = panel(k, {j, std::min(j + kWidth, columns.end)}, x);

    const int64_t strips = divide_up(rows_.size(), kTileHeight);
    for (int64_t s = 0; s < strips; ++s) {
      const Range rows = rows_.part(s, strips);
      const Operand a = strip(k, rows);
      for (int64_t j = columns.begin, x = 0; j < columns.end; j += kWidth, ++x)
        tile(k, a, panels[x], rows, {j, std::min(j + kWidth, columns.end)});
    }
  }

  /// op(B)(k, columns), packed at place `index` of the block if that pays.
  Operand panel(Range k, Range columns, int64_t index) {
    const T* b =
        b_ + (g_.transpose_b ? columns.begin * g_.ldb + k.begin : k.begin * g_.ldb + columns.begin);
    E* packed = scratch_.panels[index][0];
    if (g_.transpose_b) {
      for (int64_t j = 0; j < columns.size(); j += kLanes<E>)
        pack_transposed(k.size(), std::min<int64_t>(kLanes<E>, columns.size() - j), b + j * g_.ldb,
                        g_.ldb, packed + j, kWidth);
      return {packed, kWidth};
    }
    const bool few = rows_.size() <= kStripsWorthPacking * kTileHeight;
    if constexpr (kAsItIs)
      if (few && columns.size() == kWidth) return {b, g_.ldb};
    pack_across(k.size(), columns.size(), b, g_.ldb, packed, kWidth);
    return {packed, kWidth};
  }

  /// op(A)(rows, k), where it is or where it is copied to.
  Operand strip(Range k, Range rows) {
    if (g_.transpose_a) {  // whole vectors of columns, some of which may lie before the strip
      constexpr int64_t kColumns = Scratch<Sum, E>::kColumns;
      const int64_t columns = std::min(kColumns, g_.m);
      const int64_t first = std::min(rows.begin, g_.m - columns);
      E* packed = scratch_.columns[0];
      pack_across(k.size(), columns, a_ + k.begin * g_.lda + first, g_.lda, packed, kColumns);
      return {packed + rows.begin - first, kColumns};
    }
    const T* a = a_ + rows.begin * g_.lda + k.begin;
    if constexpr (kAsItIs)
      if (g_.lda * sizeof(T) % 2048 != 0) return {a, g_.lda};
    pack_rows(k.size(), rows.size(), a, g_.lda, scratch_.rows[0], Scratch<Sum, E>::kRow);
    return {scratch_.rows[0], Scratch<Sum, E>::kRow};
  }

  /// One tile of C; through a buffer where C is narrower than the tile.
  void tile(Range k, Operand a, Operand b, Range rows, Range columns) {
    const int64_t vectors = divide_up(columns.size(), kLanes<Sum>);
    const Tile<E> tile{.height = rows.size(),
                       .vectors = vectors,
                       .k = divide_up(k.size(), kPerElement<T>),
                       .strip = g_.transpose_a ? Strip::columns : Strip::rows,
                       .a = a.at,
                       .stride_a = a.stride,
                       .b = b.at,
                       .stride_b = b.stride};
    const Sum alpha(g_.alpha), beta(k.begin == 0 ? g_.beta : 1);
    TC* c = c_ + rows.begin * g_.ldc + columns.begin;
    if (columns.size() == vectors * kLanes<Sum>) return multiply(tile, alpha, beta, c, g_.ldc);
    multiply(tile, alpha, Sum(0), scratch_.tile[0], kWidth);
    for (int64_t i = 0; i < rows.size(); ++i)
      for (int64_t j = 0; j < columns.size(); ++j)
        put(scratch_.tile[i][j], beta, c[i * g_.ldc + j]);
  }
};

}  // namespace gradus::cpu
