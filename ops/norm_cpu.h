#pragma once
// Norms on the CPU: a row is passed over while it is in the nearest cache.
#include <vector>

#include "core/elementwise.h"
#include "core/parallel_for.h"
#include "ops/norm.h"

namespace gradus::norm {

template <bool kCentred, class T, class A>
Moments<A> moments_of_row(int64_t n, const T* x, A epsilon) {
  A m = 0, sum = 0, squares = 0;
  if (kCentred) {
#pragma omp simd reduction(+ : m)
    for (int64_t i = 0; i < n; ++i) m += A(x[i]);
    m /= A(n);
  }
#pragma omp simd reduction(+ : sum, squares)
  for (int64_t i = 0; i < n; ++i) {
    A d = A(x[i]) - m;
    sum += d;
    squares += d * d;
  }
  return moments<kCentred>(m, sum, squares, n, epsilon);
}

template <bool kCentred, class T>
void forward_cpu(const Forward<T>& f) {
  using A = Compute<T>;
  parallel_for(f.rows, std::max<int64_t>(1, kGrain / f.n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *x = f.x + r * f.n, *gamma = f.gamma, *beta = f.beta;
      T* y = f.y + r * f.n;
      f.moments[r] = moments_of_row<kCentred>(f.n, x, f.epsilon);
      Normalise<A> normal{f.moments[r]};
      if (beta)
        for (int64_t i = 0; i < f.n; ++i) y[i] = T(normal(i, A(x[i]), A(gamma[i]), A(beta[i])));
      else
        for (int64_t i = 0; i < f.n; ++i) y[i] = T(normal(i, A(x[i]), A(gamma[i]), A(0)));
    }
  });
}

/// dx of row r; adds its dγ and dβ.
template <bool kCentred, class T, class A>
void backward_row(const Backward<T>& b, int64_t r, A* dgamma, A* dbeta) {
  const T *x = b.x + r * b.n, *dy = b.dy + r * b.n, *gamma = b.gamma;
  T* dx = b.dx + r * b.n;
  const Moments<A> row = b.moments[r];
  A sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
  for (int64_t i = 0; i < b.n; ++i) {
    A g = A(gamma[i]) * A(dy[i]);
    sum_g += g;
    sum_gx += g * ((A(x[i]) - row.mean) * row.r);
  }
  const Differentiate<A> d{row, kCentred ? sum_g / A(b.n) : A(0), sum_gx / A(b.n)};
#pragma omp simd
  for (int64_t i = 0; i < b.n; ++i) {
    A dy_i = A(dy[i]);
    dgamma[i] += dy_i * ((A(x[i]) - row.mean) * row.r);
    dbeta[i] += dy_i;
    dx[i] = T(d(i, A(x[i]), dy_i, A(gamma[i])));
  }
}

/// In how many parts the rows are summed: by shape alone, not by the number of threads.
inline int64_t parts_cpu(int64_t rows) { return std::clamp<int64_t>(rows / 32, 1, 64); }

template <bool kCentred, class T>
void backward_cpu(const Backward<T>& b) {
  int64_t parts = parts_cpu(b.rows);
  int64_t grain = std::max<int64_t>(1, kGrain * parts / std::max<int64_t>(1, b.rows * b.n));
  parallel_for(parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      auto* dgamma = b.parts + p * 2 * b.n;
      std::fill_n(dgamma, 2 * b.n, Compute<T>(0));
      for (int64_t r = b.rows * p / parts; r < b.rows * (p + 1) / parts; ++r)
        backward_row<kCentred>(b, r, dgamma, dgamma + b.n);
    }
  });
}

template <class A, class To>
void sum_parts_cpu(const SumOfParts<A, To>& s) {
  std::vector<A> sum(static_cast<size_t>(s.n), A(0));
  for (int64_t p = 0; p < s.count; ++p)
    for (int64_t i = 0; i < s.n; ++i) sum[size_t(i)] += s.part[p * s.step + i];
  for (int64_t i = 0; i < s.n; ++i) s.write(i, sum[size_t(i)]);
}

}  // namespace gradus::norm
