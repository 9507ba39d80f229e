#pragma once
// Rows that a product reads or makes, block by block, so that those on their way between ranks travel beside
// the product of the others. For rank r of n, with R rows each:
//
//   as_they_come       stream   ── rows of r ──┬── rows of the others ──        a gather before a product
//                      aside    ── gather ─────┘
//
//   summed_in_blocks   stream   ── block 0 ──┬── block 1 ──┬──────────── …      a product before a sum over
//                      aside                 └── Σ 0 ──    └── Σ 1 ──┘          the ranks
//
// A block of rows that are summed and cut over the ranks has a part of those of each rank:
//
//   rows      │ rank 0: 0 │ 1 │ rank 1: 0 │ 1 │        block 0 = │ 0 of rank 0 │ 0 of rank 1 │
#include "parallel/started.h"
#include "parallel/tensor_parallel.h"

namespace gradus::parallel {

/// Rows first … first + n − 1 of contiguous x (rows, C): a view.
inline Tensor rows(const Tensor& x, int64_t first, int64_t n) {
  const int64_t width = x.size(1);
  return x.alias({n, width}, {width, 1}, x.offset() + first * width);
}

/// All rows, from those that this rank has, contiguous: from all ranks where tokens are cut. Calls
/// f(first, some) for blocks that cover them, as soon as the stream has them.
template <class F>
Tensor as_they_come(const TensorParallel& tp, const Tensor& mine, F&& f) {
  if (!tp.splits_tokens()) {
    f(int64_t(0), mine);
    return mine;
  }
  Started gather = begin_all_gather(tp.group, mine);
  const int64_t n = mine.size(0), own = n * tp.rank();
  f(own, mine);
  Tensor all = gather.wait();
  const auto block = [&](int64_t begin, int64_t end) {
    if (begin < end) f(begin, rows(all, begin, end - begin));
  };
  block(0, own);
  block(own + n, all.size(0));
  return all;
}

/// Σ over the ranks of y (n, C) like x; where tokens are cut, this rank's rows of it. Calls f(y, x) for blocks,
/// which may be 3-D, (ranks, rows, columns), and is to write y from x.
template <class F>
Tensor summed_in_blocks(const TensorParallel& tp, const Tensor& x, int64_t width, F&& f) {
  const int64_t ranks = tp.splits_tokens() ? tp.ranks() : 1, own = x.size(0) / ranks;
  const int64_t blocks = own % 2 == 0 ? 2 : 1, part = own / blocks, in = x.size(1);
  const Tensor sum = empty({own, width}, x.dtype(), x.device());
  Pending pending[2];
  for (int64_t i = 0; i < blocks; ++i) {
    const Tensor from = x.alias({ranks, part, in}, {own * in, in, 1}, x.offset() + i * part * in);
    const Tensor to = rows(sum, i * part, part);
    const Tensor y = ranks > 1 ? empty({ranks, part, width}, x.dtype(), x.device())
                               : to.alias({1, part, width}, {part * width, width, 1}, to.offset());
    f(y, from);
    pending[i] = start_aside({y, sum}, [&] {
      ranks > 1 ? tp.group.reduce_scatter_into(to, y) : tp.group.all_reduce_into(y);
    });
  }
  for (Pending& p : pending) p.join();
  return sum;
}

}  // namespace gradus::parallel
