#pragma once
// Attention on the CPU, in f32 or f64: blocks of queries, whose scores stay in the cache.
//
// One task is the heads that share one key head of one sample. It walks over blocks of kQueries rows:
// products by gemm_cpu (serial inside a task), rows by loops that vectorise. With a causal mask a block
// computes only the columns that its last row sees, which is half of the work in all.
#include <cmath>
#include <limits>
#include <vector>

#include "core/index_map.h"
#include "core/math.h"
#include "core/parallel_for.h"
#include "core/random.h"
#include "ops/gemm.h"

namespace gradus::attention_cpu {

inline constexpr int64_t kQueries = 64;

/// A (B, H, T, d) array whose rows of d are contiguous.
template <class A>
struct Rows {
  A* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides
  A* at(int64_t b, int64_t h, int64_t i) const { return data + b * batch + h * head + i * row; }
};

/// A mask that broadcasts to (B, H, Tq, Tk): `visible` (0 hides) or `added`, or neither.
template <class A>
struct Mask {
  const uint8_t* visible = nullptr;
  const A* added = nullptr;
  int64_t strides[4] = {};
  int64_t row(int64_t b, int64_t h, int64_t i) const {
    return b * strides[0] + h * strides[1] + i * strides[2];
  }
};

template <class A>
struct Problem {
  int64_t batch, heads, group, tq, tk, d;  // `group` query heads share one key head
  A scale;
  bool causal;
  Mask<A> mask;
  Philox stream;  // dropout: element (head_rows(b H + h) Tq + i) Tk + j is kept if its word reaches
  IndexMap head_rows;  // the threshold
  uint64_t threshold = 0;
  A keep_scale = 1;
  Rows<const A> q, k, v;

  /// How many keys, from the first on, query i may see.
  int64_t columns(int64_t i) const {
    return causal ? std::min(tk, std::max<int64_t>(0, i + 1 + tk - tq)) : tk;
  }
};

template <class A>
Gemm product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, int64_t lda,
             int64_t ldb, int64_t ldc, double beta) {
  return {.transpose_a = transpose_a, .transpose_b = transpose_b, .m = m, .n = n, .k = k, .lda = lda,
          .ldb = ldb, .ldc = ldc, .beta = beta, .type = dtype_of<A>, .type_c = dtype_of<A>};
}

/// A block of scores: rows first … first + rows − 1 of head h, `columns` keys, row stride tk.
struct Block {
  int64_t b, h, first, rows, columns;
};

/// scores ← scale · Q Kᵀ, with −∞ at keys that are not seen.
template <class A>
void scores_of(const Problem<A>& p, const Block& n, A* scores) {
  Gemm g = product<A>(false, true, n.rows, n.columns, p.d, p.q.row, p.k.row, p.tk, 0);
  g.alpha = double(p.scale);
  gemm_cpu(g, p.q.at(n.b, n.h, n.first), p.k.at(n.b, n.h / p.group, 0), scores);
  for (int64_t r = 0; r < n.rows; ++r) {
    A* s = scores + r * p.tk;
    int64_t seen = std::min(n.columns, p.columns(n.first + r));
    int64_t at = p.mask.row(n.b, n.h, n.first + r), step = p.mask.strides[3];
    if (p.mask.visible)
      for (int64_t j = 0; j < seen; ++j) s[j] = p.mask.visible[at + j * step] ? s[j] : -INFINITY;
    if (p.mask.added)
      for (int64_t j = 0; j < seen; ++j) s[j] += p.mask.added[at + j * step];
    for (int64_t j = seen; j < n.columns; ++j) s[j] = -INFINITY;
  }
}

/// What a row of scores becomes P by: P = e^{s − max} · inverse. A log-sum-exp would be one number
/// less, but of large scores it keeps few digits behind the point.
template <class A>
struct Scale {
  A max, inverse;
};

/// One row: s ← e^{s − max} / Σ e^{s − max}; 0 where nothing is seen.
template <class A>
Scale<A> softmax_row(A* s, int64_t n) {
  A m = -std::numeric_limits<A>::infinity(), l = 0;
#pragma omp simd reduction(max : m)
  for (int64_t j = 0; j < n; ++j) m = s[j] > m ? s[j] : m;
  if (m == -std::numeric_limits<A>::infinity()) m = 0;
#pragma omp simd reduction(+ : l)
  for (int64_t j = 0; j < n; ++j) {
    s[j] = math::exp(s[j] - m);
    l += s[j];
  }
  const Scale<A> scale{m, l == 0 ? A(0) : 1 / l};
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) s[j] *= scale.inverse;
  return scale;
}

/// The same again, when the scale is known.
template <class A>
void softmax_row(A* s, int64_t n, Scale<A> scale) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) s[j] = math::exp(s[j] - scale.max) * scale.inverse;
}

/// x ← x ⊙ m / (1 − p), the dropout of a block (or of its gradient).
template <class A>
void drop(const Problem<A>& p, const Block& n, A* x, std::vector<uint32_t>& words) {
  if (p.threshold == 0) return;
  words.resize(size_t(n.columns));
  for (int64_t r = 0; r < n.rows; ++r) {
    const uint64_t head = p.head_rows(uint64_t(n.b * p.heads + n.h));
    const uint64_t first = (head * uint64_t(p.tq) + uint64_t(n.first + r)) * uint64_t(p.tk);
    fill_words(p.stream, first, words.data(), n.columns);
    A* row = x + r * p.tk;
    for (int64_t j = 0; j < n.columns; ++j)
      row[j] = words[size_t(j)] >= p.threshold ? row[j] * p.keep_scale : A(0);
  }
}

template <class A, class F>
void for_each_block(const Problem<A>& p, int64_t b, int64_t h, F f) {
  for (int64_t i = 0; i < p.tq; i += kQueries) {
    int64_t rows = std::min(kQueries, p.tq - i), columns = p.columns(i + rows - 1);
    f(Block{b, h, i, rows, columns});
  }
}

/// o = P̃ V, and the scale of each row (B, H, Tq).
template <class A>
void forward(const Problem<A>& p, Rows<A> o, Scale<A>* scale) {
  parallel_for(p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<A> scores(size_t(kQueries * p.tk));
    std::vector<uint32_t> words;
    for (int64_t task = begin; task < end; ++task)
      for_each_block(p, task / p.heads, task % p.heads, [&](const Block& n) {
        scores_of(p, n, scores.data());
        for (int64_t r = 0; r < n.rows; ++r)
          scale[task * p.tq + n.first + r] = softmax_row(scores.data() + r * p.tk, n.columns);
        drop(p, n, scores.data(), words);
        gemm_cpu(product<A>(false, false, n.rows, p.d, n.columns, p.tk, p.v.row, o.row, 0),
                 scores.data(), p.v.at(n.b, n.h / p.group, 0), o.at(n.b, n.h, n.first));
      });
  });
}

template <class A>
struct Gradients {
  Rows<const A> d_o;
  const Scale<A>* scale;
  Rows<A> dq, dk, dv;
};

/// dS = P ⊙ (dP − δ) · scale with dP = (dO Vᵀ) ⊙ m/(1 − p) in `dp`, into dp. δ is summed from P and dP,
/// not from o and dO: of one key that has all the weight, dS is then exactly 0. A key that is not seen
/// has P = 0 and passes nothing on, whatever stands in dP.
template <class A>
void score_gradients(const Problem<A>& p, const Block& n, const A* probability, A* dp) {
  for (int64_t r = 0; r < n.rows; ++r) {
    const A* P = probability + r * p.tk;
    A *row = dp + r * p.tk, delta = 0;
#pragma omp simd reduction(+ : delta)
    for (int64_t j = 0; j < n.columns; ++j) delta += P[j] == 0 ? A(0) : P[j] * row[j];
#pragma omp simd
    for (int64_t j = 0; j < n.columns; ++j)
      row[j] = P[j] == 0 ? A(0) : P[j] * (row[j] - delta) * p.scale;
  }
}

template <class A>
void backward(const Problem<A>& p, const Gradients<A>& g) {
  int64_t key_heads = p.heads / p.group;
  parallel_for(p.batch * key_heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<A> probability(size_t(kQueries * p.tk)), dropped(probability.size()), dp(probability.size());
    std::vector<uint32_t> words;
    for (int64_t task = begin; task < end; ++task) {
      int64_t b = task / key_heads, kv = task % key_heads;
      A *dk = g.dk.at(b, kv, 0), *dv = g.dv.at(b, kv, 0);
      for (int64_t j = 0; j < p.tk; ++j) {
        std::fill_n(dk + j * g.dk.row, p.d, A(0));
        std::fill_n(dv + j * g.dv.row, p.d, A(0));
      }
      auto block = [&](const Block& n) {
        const A *q = p.q.at(b, n.h, n.first), *d_o = g.d_o.at(b, n.h, n.first);
        scores_of(p, n, probability.data());
        for (int64_t r = 0; r < n.rows; ++r)
          softmax_row(probability.data() + r * p.tk, n.columns,
                      g.scale[(b * p.heads + n.h) * p.tq + n.first + r]);
        const A* used = probability.data();
        if (p.threshold) {
          dropped = probability;
          drop(p, n, dropped.data(), words);
          used = dropped.data();
        }
        gemm_cpu(product<A>(true, false, n.columns, p.d, n.rows, p.tk, g.d_o.row, g.dv.row, 1), used, d_o, dv);
        gemm_cpu(product<A>(false, true, n.rows, n.columns, p.d, g.d_o.row, p.v.row, p.tk, 0), d_o,
                 p.v.at(b, kv, 0), dp.data());
        drop(p, n, dp.data(), words);
        score_gradients(p, n, probability.data(), dp.data());
        gemm_cpu(product<A>(false, false, n.rows, p.d, n.columns, p.tk, p.k.row, g.dq.row, 0), dp.data(),
                 p.k.at(b, kv, 0), g.dq.at(b, n.h, n.first));
        gemm_cpu(product<A>(true, false, n.columns, p.d, n.rows, p.tk, p.q.row, g.dk.row, 1), dp.data(), q, dk);
      };
      for (int64_t h = kv * p.group; h < (kv + 1) * p.group; ++h) for_each_block(p, b, h, block);
    }
  });
}

}  // namespace gradus::attention_cpu
