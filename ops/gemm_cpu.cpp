// The matrix product on the CPU: dtypes, special shapes, and the work of each thread.
//
// Threads share C: each computes rectangles of it, over all of k and in the same order. No sum depends on
// the number of threads. What happens inside a rectangle: gemm_blocks.h.
#include <omp.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/parallel_for.h"
#include "ops/gemm.h"
#include "ops/gemm_blocks.h"
#include "ops/gemm_count.h"
#include "ops/gemm_dot.h"

namespace gradus {
namespace {

using cpu::divide_up, cpu::kTileWidth, cpu::Range;

/// How each matrix of C is cut: into rows × columns rectangles.
struct Cuts {
  int64_t rows, columns;
};

/// The fewest cuts that give all threads equally many rectangles, in the direction that costs least.
/// For each of k, a rectangle (h, w) takes h w multiply-adds and has h elements of A and w of B read
/// and packed, each as long as so many multiply-adds (measured).
template <class E>
Cuts choose_cuts(const Gemm& g, int64_t threads) {
  const int64_t pieces = threads / std::gcd(g.batch, threads);
  const int64_t panels = divide_up(g.n, kTileWidth<E>);
  const int64_t cost_a = g.transpose_a ? 10 : 6, cost_b = g.transpose_b ? 8 : 4;
  Cuts best{};
  int64_t best_cost = INT64_MAX;
  for (int64_t rows = 1; rows <= pieces; ++rows) {
    if (pieces % rows != 0) continue;
    const int64_t h = divide_up(g.m, rows), w = divide_up(panels, pieces / rows) * kTileWidth<E>;
    const int64_t cost = h * w + cost_a * h + cost_b * w;
    if (cost < best_cost) best = {rows, pieces / rows}, best_cost = cost;
  }
  return best;
}

/// One thread inside a parallel region, or where starting others takes longer than the product.
int64_t threads_for(const Gemm& g) {
  constexpr int64_t kWorthAThread = 1 << 18;  // multiply-adds: a few microseconds
  if (in_loop() || omp_in_parallel() || g.m * g.n * g.k * g.batch < kWorthAThread) return 1;
  return omp_get_max_threads();
}

/// body(i) for each i < n, on that many threads or on this one alone.
template <class Body>
void for_each(int64_t n, int64_t threads, const Body& body) {
  parallel_for(n, threads > 1 ? 1 : n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

template <class T, class TC>
void multiply(const Gemm& g, const T* a, const T* b, TC* c) {
  constexpr int64_t kWidth = kTileWidth<cpu::Element<T>>;
  const int64_t threads = threads_for(g);
  const Cuts cuts = choose_cuts<cpu::Element<T>>(g, threads);
  const Range rows{0, g.m}, panels{0, divide_up(g.n, kWidth)};
  for_each(g.batch * cuts.rows * cuts.columns, threads, [&](int64_t at) {
    const int64_t x = at % cuts.columns, y = at / cuts.columns % cuts.rows;
    const int64_t i = at / cuts.columns / cuts.rows;
    const Range part = panels.part(x, cuts.columns);
    const Range columns{part.begin * kWidth, std::min(part.end * kWidth, g.n)};
    cpu::Rectangle<T, TC>(g, a + i * g.stride_a, b + i * g.stride_b, c + i * g.stride_c,
                          rows.part(y, cuts.rows), columns)
        .compute();
  });
}

/// Some rows of numbers with k contiguous, of each matrix of a batch.
template <class T>
struct Rows {
  const T* at;
  int64_t stride, batch_stride, count, stride_c;
};

/// Whether C has so few rows or columns that packing would cost more than the product, while k is
/// contiguous in both operands: then its elements are dot products.
bool has_few_dots(const Gemm& g) {
  return std::min(g.m, g.n) <= cpu::kFewRows && (!g.transpose_a || g.lda == 1) &&
         (g.transpose_b || g.ldb == 1);
}

template <class T, class TC>
void multiply_dots(const Gemm& g, const T* a, const T* b, TC* c) {
  using Sum = Compute<T>;
  Rows<T> few{a, g.lda, g.stride_a, g.m, g.ldc}, many{b, g.ldb, g.stride_b, g.n, 1};
  if (few.count > many.count) std::swap(few, many);
  const int64_t threads = threads_for(g), groups = divide_up(many.count, cpu::kManyRows);
  for_each(g.batch * groups, threads, [&](int64_t at) {
    const int64_t s = at / groups, group = at % groups;
    const int64_t first = group * cpu::kManyRows;
    const int64_t count = std::min<int64_t>(cpu::kManyRows, many.count - first);
    Sum dots[cpu::kFewRows * cpu::kManyRows];
    cpu::dot_products(g.k, few.at + s * few.batch_stride, few.stride, few.count,
                      many.at + s * many.batch_stride + first * many.stride, many.stride, count,
                      dots);
    for (int64_t i = 0; i < few.count; ++i)
      for (int64_t j = 0; j < count; ++j)
        cpu::put(Sum(g.alpha) * dots[i * cpu::kManyRows + j], Sum(g.beta),
                 c[s * g.stride_c + i * few.stride_c + (first + j) * many.stride_c]);
  });
}

/// C ← P + β C, P of floats without gaps or, if null, zero.
template <class TC>
void add_scaled(const Gemm& g, const float* product, TC* c) {
  constexpr int64_t kGrain = 1 << 14;  // numbers
  const int64_t grain = divide_up(kGrain, std::max<int64_t>(g.n, 1));
  parallel_for(g.batch * g.m, grain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at)
      for (int64_t j = 0; j < g.n; ++j)
        cpu::put(Compute<TC>(product ? product[at * g.n + j] : 0), Compute<TC>(g.beta),
                 c[at / g.m * g.stride_c + at % g.m * g.ldc + j]);
  });
}

/// C of bf16 or f16 with k in several blocks: summed in floats, rounded once.
template <class T>
void multiply_and_round(const Gemm& g, const T* a, const T* b, T* c) {
  std::vector<float> product(g.batch * g.m * g.n);
  Gemm wide = g;
  wide.ldc = g.n;
  wide.stride_c = g.m * g.n;
  wide.beta = 0;
  multiply<T, float>(wide, a, b, product.data());
  add_scaled<T>(g, product.data(), c);
}

template <class T, class TC>
void choose(const Gemm& g, const T* a, const T* b, TC* c) {
  if (g.k == 0 || g.alpha == 0) return add_scaled<TC>(g, nullptr, c);
  if (has_few_dots(g)) return multiply_dots(g, a, b, c);
  if constexpr (!std::is_same_v<TC, Compute<T>>)
    if (g.k > cpu::kBlockDepth<T>) return multiply_and_round(g, a, b, c);
  multiply(g, a, b, c);
}

void check_sizes(const Gemm& g) {
  int64_t width_a = g.transpose_a ? g.m : g.k, width_b = g.transpose_b ? g.k : g.n;
  check(g.m >= 0 && g.n >= 0 && g.k >= 0 && g.batch >= 0, "gemm: negative size in m ", g.m, ", n ",
        g.n, ", k ", g.k, ", batch ", g.batch);
  check(g.lda >= width_a && g.ldb >= width_b && g.ldc >= g.n,
        "gemm: rows overlap: lda, ldb, ldc must be at least ", width_a, ", ", width_b, ", ", g.n,
        ", got ", g.lda, ", ", g.ldb, ", ", g.ldc);
  check(g.batch <= 1 || g.m == 0 || g.stride_c >= (g.m - 1) * g.ldc + g.n,
        "gemm: matrices of C overlap: stride_c is ", g.stride_c);
  bool narrow = g.type == DType::bf16 || g.type == DType::f16;
  check(g.type_c == g.type || (narrow && g.type_c == DType::f32), "gemm: C must be ", g.type,
        narrow ? " or f32" : "", ", got ", g.type_c);
}

}  // namespace

int64_t& multiply_adds() {
  thread_local int64_t count = 0;
  return count;
}

void gemm_cpu(const Gemm& g, const void* a, const void* b, void* c) {
  check_sizes(g);
  multiply_adds() += g.batch * g.m * g.n * g.k;
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  dispatch_floating("gemm", g.type, [&]<class T>() {
    const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
    if (g.type_c == g.type) return choose(g, x, y, static_cast<T*>(c));
    if constexpr (!std::is_same_v<T, Compute<T>>) choose(g, x, y, static_cast<float*>(c));
  });
}

}  // namespace gradus
