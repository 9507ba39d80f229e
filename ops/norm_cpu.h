#pragma once
// Norms on the CPU: a row is passed over while it is in the nearest cache.
#include <vector>

#include "core/elementwise.h"
#include "core/parallel_for.h"
#include "ops/norm.h"

namespace gradus::norm {

template <class T, class A>
Moments<A> moments_of_row(bool centred, int64_t n, const T* x, A epsilon) {
  const A share = A(1) / A(n);
  A m = 0, sum = 0, squares = 0;
  if (centred) {
#pragma omp simd reduction(+ : m)
    for (int64_t i = 0; i < n; ++i) m += A(x[i]);
    m *= share;
  }
#pragma omp simd reduction(+ : sum, squares)
  for (int64_t i = 0; i < n; ++i) {
    A d = A(x[i]) - m;
    sum += d;
    squares += d * d;
  }
  return moments(centred, m, sum, squares, share, epsilon);
}

/// Row r of the sum that is normalised. `words` has room for n.
template <class T>
void add_branch(const Forward<T>& f, int64_t r, uint32_t* words) {
  using A = Compute<T>;
  const T *x = f.x + r * f.n, *branch = f.branch + r % f.branch_rows * f.n, *bias = f.bias;
  T* sum = f.sum + r * f.n;
  if (f.mask.drops()) {
    fill_words(f.mask.stream, f.first_element + uint64_t(r * f.n), words, f.n);
    for (int64_t i = 0; i < f.n; ++i)
      sum[i] = T(A(x[i]) + f.mask(words[i], A(branch[i]) + (bias ? A(bias[i]) : A(0))));
  } else if (bias) {
    for (int64_t i = 0; i < f.n; ++i) sum[i] = T(A(x[i]) + (A(branch[i]) + A(bias[i])));
  } else {
    for (int64_t i = 0; i < f.n; ++i) sum[i] = T(A(x[i]) + A(branch[i]));
  }
}

template <class T>
void forward_row(const Forward<T>& f, int64_t r) {
  using A = Compute<T>;
  const T *x = (f.branch ? f.sum : f.x) + r * f.n, *gamma = f.gamma, *beta = f.beta;
  T* y = f.y + r * f.n;
  f.moments[r] = moments_of_row(f.centred, f.n, x, f.epsilon);
  Normalise<A> normal{f.moments[r]};
  if (beta)
    for (int64_t i = 0; i < f.n; ++i) y[i] = T(normal(i, A(x[i]), A(gamma[i]), A(beta[i])));
  else
    for (int64_t i = 0; i < f.n; ++i) y[i] = T(normal(i, A(x[i]), A(gamma[i]), A(0)));
}

template <class T>
void forward_cpu(const Forward<T>& f) {
  parallel_for(f.rows, std::max<int64_t>(1, kGrain / f.n), [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> words(f.mask.drops() ? size_t(f.n) : 0);
    for (int64_t r = begin; r < end; ++r) {
      if (f.branch) add_branch(f, r, words.data());
      forward_row(f, r);
    }
  });
}

/// Of row r, adds dγ and dβ, and returns the function that makes dx.
template <class T, class A>
Differentiate<A> differentiate_row(const Backward<T>& b, int64_t r) {
  const T *x = b.x + r * b.n, *dy = b.dy + r * b.n, *gamma = b.gamma;
  const Moments<A> row = b.moments[r];
  A sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
  for (int64_t i = 0; i < b.n; ++i) {
    A g = A(gamma[i]) * A(dy[i]);
    sum_g += g;
    sum_gx += g * ((A(x[i]) - row.mean) * row.r);
  }
  return {row, b.centred ? sum_g * b.share : A(0), sum_gx * b.share};
}

/// `sums`: dγ, dβ and, with a branch, the gradient of its bias. `to` is dx, in memory or wide.
template <class T, class A, class D>
void backward_row(const Backward<T>& b, int64_t r, A* sums, D* to) {
  const T *x = b.x + r * b.n, *dy = b.dy + r * b.n, *gamma = b.gamma;
  const auto d = differentiate_row<T, A>(b, r);
  A *dgamma = sums, *dbeta = sums + b.n;
#pragma omp simd
  for (int64_t i = 0; i < b.n; ++i) {
    A dy_i = A(dy[i]);
    dgamma[i] += dy_i * ((A(x[i]) - d.row.mean) * d.row.r);
    dbeta[i] += dy_i;
    to[i] = D(d(A(x[i]), dy_i, A(gamma[i])));
  }
}

/// What lies between dx through the norm, `wide`, and the gradients of the residual and the branch.
template <class T, class A>
void backward_of_sum(const Backward<T>& b, int64_t r, A* dbias, A* wide, uint32_t* words) {
  T* dx = b.dx + r * b.n;
  if (const T* ds = b.ds ? b.ds + r * b.n : nullptr)
    for (int64_t i = 0; i < b.n; ++i) wide[i] += A(ds[i]);
  for (int64_t i = 0; i < b.n; ++i) dx[i] = T(wide[i]);
  if (b.mask.drops()) {
    T* dbranch = b.dbranch + r * b.n;
    fill_words(b.mask.stream, b.first_element + uint64_t(r * b.n), words, b.n);
    for (int64_t i = 0; i < b.n; ++i) {
      wide[i] = b.mask(words[i], wide[i]);
      dbranch[i] = T(wide[i]);
    }
  }
  for (int64_t i = 0; i < b.n; ++i) dbias[i] += wide[i];
}

/// In how many parts the rows are summed: by shape alone, not by the number of threads.
inline int64_t parts_cpu(int64_t rows) { return std::clamp<int64_t>(rows / 32, 1, 64); }

template <class T>
void backward_cpu(const Backward<T>& b) {
  using A = Compute<T>;
  int64_t parts = parts_cpu(b.rows);
  int64_t grain = std::max<int64_t>(1, kGrain * parts / std::max<int64_t>(1, b.rows * b.n));
  const bool branch = b.sums > 2;
  parallel_for(parts, grain, [&](int64_t begin, int64_t end) {
    std::vector<A> wide(branch ? size_t(b.n) : 0);
    std::vector<uint32_t> words(b.mask.drops() ? size_t(b.n) : 0);
    for (int64_t p = begin; p < end; ++p) {
      A* sums = b.parts + p * b.sums * b.n;
      std::fill_n(sums, b.sums * b.n, A(0));
      for (int64_t r = b.rows * p / parts; r < b.rows * (p + 1) / parts; ++r) {
        if (!branch) {
          backward_row(b, r, sums, b.dx + r * b.n);
          continue;
        }
        backward_row(b, r, sums, wide.data());
        backward_of_sum(b, r, sums + 2 * b.n, wide.data(), words.data());
      }
    }
  });
}

}  // namespace gradus::norm
