#pragma once
// The CPU side of reduce (see ops/reduce.h). Three loops, by how x lies in memory:
//
//   lanes     a contiguous run       kLanes partial results side by side, which become vector registers
//   range     any run of one output  leaves of kLeaf elements, combined as a balanced tree
//   columns   y_c = fold of x_{r,c}  whole rows into a row of results: memory is read in order
//
// Long reductions are cut into blocks that threads share; the blocks, too, form a balanced tree.
#include <vector>

#include "ops/reduce_walk.h"

namespace gradus::detail {

inline int64_t blocks_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

inline constexpr int kLanes = 32;
inline constexpr int64_t kLeaf = 1024;        // elements folded in one loop
inline constexpr int64_t kBlock = 64 * 1024;  // elements that one thread folds
inline constexpr int64_t kBlockRows = 128;    // the same for columns: rows …
inline constexpr int64_t kTileBytes = 16384;  // … and results, which stay in the L1 cache

/// n neighbouring elements; x[0] has the index `first`.
template <class F, class T>
typename F::State cpu_lanes(const F& f, const T* x, int64_t n, int64_t first) {
  using State = typename F::State;
  State lane[kLanes];
  for (int j = 0; j < kLanes; ++j) lane[j] = f.identity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lane[j] = f.add(lane[j], Compute<T>(x[i + j]), first + i + j);
  for (int j = 0, rest = int(n - i); j < rest; ++j)
    lane[j] = f.add(lane[j], Compute<T>(x[i + j]), first + i + j);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lane[j] = f.combine(lane[j], lane[j + half]);
  return lane[0];
}

template <class F, class T>
typename F::State cpu_run(const F& f, const T* x, int64_t n, int64_t step, int64_t first) {
  if (step == 1 && n >= 2 * kLanes) {
    if constexpr (requires { f.run(x, n, first); })
      return f.run(x, n, first);
    else
      return cpu_lanes(f, x, n, first);
  }
  typename F::State s = f.identity();
  for (int64_t i = 0; i < n; ++i) s = f.add(s, Compute<T>(x[i * step]), first + i);
  return s;
}

/// Elements [begin, end) of the reduced dimensions of the output at x.
template <class F, class T>
typename F::State cpu_range(const Walk<1>& w, const F& f, const T* x, int64_t begin, int64_t end) {
  if (end - begin > kLeaf) {
    int64_t middle = begin + (blocks_of(end - begin, kLeaf) + 1) / 2 * kLeaf;
    return f.combine(cpu_range(w, f, x, begin, middle), cpu_range(w, f, x, middle, end));
  }
  int64_t run = w.rank ? w.sizes[w.rank - 1] : 1, step = w.rank ? w.strides[0][w.rank - 1] : 1;
  if (w.rank <= 1) return cpu_run(f, x + begin * step, end - begin, step, begin);
  typename F::State s = f.identity();
  for (int64_t i = begin, n; i < end; i += n) {
    n = std::min(run - i % run, end - i);
    s = f.combine(s, cpu_run(f, x + place(w, i), n, step, i));
  }
  return s;
}

/// parts[0][c] ← fold over b of parts[b][c], as a balanced tree.
template <class F>
void cpu_fold_parts(const F& f, typename F::State* parts, int64_t blocks, int64_t columns) {
  for (int64_t gap = 1; gap < blocks; gap *= 2)
    for (int64_t b = 0; b + gap < blocks; b += 2 * gap)
      for (int64_t c = 0; c < columns; ++c)
        parts[b * columns + c] = f.combine(parts[b * columns + c], parts[(b + gap) * columns + c]);
}

template <class F, class T, class Y>
void cpu_reduce_rows(const ReduceWalk& w, const F& f, const T* x, const Results<Y>& y) {
  int64_t n = w.reduced.numel, outputs = w.kept.numel, blocks = blocks_of(n, kBlock);
  if (blocks <= 1)
    return parallel_for(outputs, kGrain / (n + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        y.put(o, f.finish(cpu_range(w.reduced, f, x + place(w.kept, o), 0, n)));
    });
  std::vector<typename F::State> parts(size_t(outputs * blocks));
  parallel_for(outputs * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t o = i / blocks, first = i % blocks * kBlock;
      parts[size_t(i)] =
          cpu_range(w.reduced, f, x + place(w.kept, o), first, std::min(first + kBlock, n));
    }
  });
  for (int64_t o = 0; o < outputs; ++o) {
    cpu_fold_parts(f, &parts[size_t(o * blocks)], blocks, 1);
    y.put(o, f.finish(parts[size_t(o * blocks)]));
  }
}

/// s_c ← f.add(s_c, x_c) for a row of elements.
template <class F, class T>
void cpu_add_row(const F& f, typename F::State* s, const T* x, int64_t n, int64_t step,
                 int64_t row) {
  if (step == 1) {
#pragma GCC ivdep  // s is a buffer of ours
    for (int64_t c = 0; c < n; ++c) s[c] = f.add(s[c], Compute<T>(x[c]), row);
  } else {
    for (int64_t c = 0; c < n; ++c) s[c] = f.add(s[c], Compute<T>(x[c * step]), row);
  }
}

template <class F, class T, class Y>
void cpu_reduce_columns(const ReduceWalk& w, const F& f, const T* x, const Results<Y>& y) {
  using State = typename F::State;
  constexpr int64_t kTile = kTileBytes / sizeof(State);  // whole rows, mostly: read page after page
  int64_t rows = w.reduced.numel, columns = w.columns(), step = w.kept_step();
  int64_t blocks = blocks_of(rows, kBlockRows), tiles = blocks_of(columns, kTile);
  int64_t outer = w.kept.numel / columns,
          work = std::min(rows, kBlockRows) * std::min(columns, kTile);
  std::vector<State> parts(blocks > 1 ? size_t(outer * blocks * columns) : 0);
  parallel_for(outer * blocks * tiles, kGrain / work + 1, [&](int64_t begin, int64_t end) {
    State tile[kTile];
    for (int64_t i = begin; i < end; ++i) {
      int64_t c = i % tiles * kTile, b = i / tiles % blocks, o = i / tiles / blocks;
      int64_t n = std::min(kTile, columns - c), last = std::min(rows, (b + 1) * kBlockRows);
      State* s = blocks > 1 ? &parts[size_t((o * blocks + b) * columns + c)] : tile;
      std::fill(s, s + n, f.identity());
      const T* at = x + place(w.kept, o * columns + c);
      for (int64_t r = b * kBlockRows; r < last; ++r)
        cpu_add_row(f, s, at + place(w.reduced, r), n, step, r);
      for (int64_t j = 0; j < n && blocks == 1; ++j) y.put(o * columns + c + j, f.finish(s[j]));
    }
  });
  for (int64_t o = 0; o < outer && blocks > 1; ++o) {
    State* s = &parts[size_t(o * blocks * columns)];
    cpu_fold_parts(f, s, blocks, columns);
    for (int64_t c = 0; c < columns; ++c) y.put(o * columns + c, f.finish(s[c]));
  }
}

template <class F, class T, class Y>
void cpu_reduce(const ReduceWalk& w, const F& f, const T* x, const Results<Y>& y) {
  if (w.by_columns() && w.reduced.numel > 0)
    cpu_reduce_columns(w, f, x, y);
  else
    cpu_reduce_rows(w, f, x, y);
}

}  // namespace gradus::detail
