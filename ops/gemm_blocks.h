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

template <class T>
inline constexpr int64_t kDepth = 1024 / sizeof(T);
template <class T>
inline constexpr int64_t kBlockWidth = 512 - 512 % kTileWidth<T>;
// Copied rows are one line longer than kDepth, which keeps them on different lines of L1.
template <class T>
inline constexpr int64_t kRowStride = kDepth<T> + 64 / sizeof(T);
inline constexpr int64_t kColumnStride = (kTileHeight + 7) / 8 * 8;
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

/// What a thread packs into, allocated once.
template <class T>
struct Scratch {
  alignas(64) T strip[std::max(kTileHeight * kRowStride<T>, kDepth<T>* kColumnStride)];
  alignas(64) T block[kDepth<T> * kBlockWidth<T>];
  alignas(64) T tile[kTileHeight * kTileWidth<T>];

  static Scratch& of_this_thread() {
    thread_local auto scratch = std::make_unique<Scratch>();
    return *scratch;
  }
};

/// A rectangle of C, computed by one thread.
template <class T, class TC>
class Rectangle {
  using Sum = Compute<T>;
  static constexpr bool kWidens = !std::is_same_v<T, Sum>;
  static constexpr int64_t kWidth = kTileWidth<Sum>;

  /// An operand of the tile: where it begins, and how far apart its rows are.
  struct Operand {
    const Sum* at;
    int64_t stride;
  };

  const Gemm& g_;
  const T *a_, *b_;
  TC* c_;
  Range rows_, columns_;
  Scratch<Sum>& scratch_ = Scratch<Sum>::of_this_thread();

 public:
  Rectangle(const Gemm& g, const T* a, const T* b, TC* c, Range rows, Range columns)
      : g_(g), a_(a), b_(b), c_(c), rows_(rows), columns_(columns) {}

  void compute() {
    for (int64_t j = columns_.begin; j < columns_.end; j += kBlockWidth<Sum>)
      for (int64_t p = 0; p < g_.k; p += kDepth<Sum>)
        block({p, std::min(p + kDepth<Sum>, g_.k)},
              {j, std::min(j + kBlockWidth<Sum>, columns_.end)});
  }

 private:
  /// C(rows, columns) ← α A(rows, k) B(k, columns) + β C, or + C after the first block of k.
  void block(Range k, Range columns) {
    Operand panels[kBlockWidth<Sum> / kWidth];
    int64_t count = 0;
    for (int64_t j = columns.begin; j < columns.end; j += kWidth, ++count)
      panels[count] = panel(k, {j, std::min(j + kWidth, columns.end)}, count);

    const int64_t strips = divide_up(rows_.size(), kTileHeight);
    for (int64_t s = 0; s < strips; ++s) {
      const Range rows = rows_.part(s, strips);
      const Operand a = strip(k, rows);
      for (int64_t j = columns.begin, x = 0; x < count; j += kWidth, ++x)
        tile(k, a, panels[x], rows, {j, std::min(j + kWidth, columns.end)});
    }
  }

  /// op(B)(k, columns), packed at place `index` of the block if that pays.
  Operand panel(Range k, Range columns, int64_t index) {
    const T* b =
        b_ + (g_.transpose_b ? columns.begin * g_.ldb + k.begin : k.begin * g_.ldb + columns.begin);
    const bool few = rows_.size() <= kStripsWorthPacking * kTileHeight;
    if constexpr (!kWidens)
      if (!g_.transpose_b && few && columns.size() == kWidth) return {b, g_.ldb};
    Sum* packed = scratch_.block + index * kDepth<Sum> * kWidth;
    pack_panel(g_.transpose_b, k.size(), columns.size(), b, g_.ldb, packed);
    return {packed, kWidth};
  }

  /// op(A)(rows, k), where it is or where it is copied to.
  Operand strip(Range k, Range rows) {
    const T* a =
        a_ + (g_.transpose_a ? k.begin * g_.lda + rows.begin : rows.begin * g_.lda + k.begin);
    if (g_.transpose_a) {
      pack_columns(k.size(), rows.size(), a, g_.lda, scratch_.strip, kColumnStride);
      return {scratch_.strip, kColumnStride};
    }
    if constexpr (!kWidens)
      if (g_.lda * sizeof(T) % 2048 != 0) return {a, g_.lda};
    pack_rows(k.size(), rows.size(), a, g_.lda, scratch_.strip, kRowStride<Sum>);
    return {scratch_.strip, kRowStride<Sum>};
  }

  /// One tile of C; through a buffer where C is narrower than the tile, in size or in type.
  void tile(Range k, Operand a, Operand b, Range rows, Range columns) {
    TC* c = c_ + rows.begin * g_.ldc + columns.begin;
    const int64_t vectors = divide_up(columns.size(), kLanes<Sum>);
    const Sum beta = k.begin == 0 ? Sum(g_.beta) : Sum(1);
    Tile<Sum> tile{.k = k.size(),
                   .a = a.at,
                   .b = b.at,
                   .c = nullptr,
                   .stride_a = a.stride,
                   .stride_b = b.stride,
                   .stride_c = g_.ldc,
                   .alpha = Sum(g_.alpha),
                   .beta = beta};
    const Strip layout = g_.transpose_a ? Strip::columns : Strip::rows;
    if constexpr (std::is_same_v<TC, Sum>)
      if (columns.size() == vectors * kLanes<Sum>) {
        tile.c = c;
        return multiply(tile, layout, rows.size(), vectors);
      }
    tile.c = scratch_.tile;
    tile.stride_c = kWidth;
    tile.beta = 0;
    multiply(tile, layout, rows.size(), vectors);
    for (int64_t i = 0; i < rows.size(); ++i)
      for (int64_t j = 0; j < columns.size(); ++j)
        put(scratch_.tile[i * kWidth + j], beta, c[i * g_.ldc + j]);
  }
};

}  // namespace gradus::cpu
