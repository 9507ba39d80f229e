#pragma once
// Layer norm and RMS norm over the last dimension, C entries a row:
//
//   x̂ = (x − μ) r,   r = 1/√(σ² + ε),   y = γ ⊙ x̂ + β        μ = ⟨x⟩,  σ² = ⟨(x − μ)²⟩
//   RMS norm: the same with μ = 0 and β = 0.                   ⟨·⟩ is the mean over the row
//
// With g = γ ⊙ dy. Since ∂μ/∂x_i = 1/C, ∂σ²/∂x_i = 2 (x_i − μ)/C and dr/dσ² = −r³/2:
//
//   dx = r (g − ⟨g⟩ − x̂ ⟨g ⊙ x̂⟩)        RMS norm has no ⟨g⟩: no mean was taken out
//   dγ = Σ_rows dy ⊙ x̂,   dβ = Σ_rows dy
//
// Check: Σ_i dx_i = 0 for layer norm, since y does not change when x is shifted.
//
// Note [mean of large numbers]
// A first mean m of entries near 10⁴ is wrong in its third decimal, which ε = 10⁻⁵ would blow up in
// a constant row. What is left, d = x − m, is small and exact:
//   μ = m + ⟨d⟩,   σ² = ⟨d²⟩ − ⟨d⟩²
#include "core/math.h"

namespace gradus::norm {

/// What backward needs to know of a row.
template <class A>
struct Moments {
  A mean, r;
};

/// From d = x − m: the sums of d and d². For RMS norm m = 0 and `sum` is ignored.
template <bool kCentred, class A>
GRADUS_HD Moments<A> moments(A m, A sum, A squares, int64_t n, A epsilon) {
  A shift = kCentred ? sum / A(n) : A(0);
  A variance = squares / A(n) - shift * shift;
  if (variance < 0) variance = 0;  // by rounding, in a constant row
  return {m + shift, math::rsqrt(variance + epsilon)};
}

/// x_i ↦ y_i
template <class A>
struct Normalise {
  Moments<A> row;
  GRADUS_HD A operator()(int64_t, A x, A gamma, A beta) const {
    return (x - row.mean) * row.r * gamma + beta;
  }
};

/// (x_i, dy_i) ↦ dx_i
template <class A>
struct Differentiate {
  Moments<A> row;
  A mean_g, mean_gx;
  GRADUS_HD A operator()(int64_t, A x, A dy, A gamma) const {
    return row.r * (gamma * dy - mean_g - (x - row.mean) * row.r * mean_gx);
  }
};

// The work: rows of n entries. beta may be null.

template <class T>
struct Forward {
  int64_t rows, n;
  Compute<T> epsilon;
  const T *x, *gamma, *beta;
  T* y;
  Moments<Compute<T>>* moments;  // one a row
};

/// The sums over rows are left in parts (number of parts, 2, n): dγ and dβ of some of the rows each.
template <class T>
struct Backward {
  int64_t rows, n;
  const T *x, *dy, *gamma;
  const Moments<Compute<T>>* moments;
  T* dx;
  Compute<T>* parts;
};

/// to_i ← β to_i + Σ_p part_p[i], for i < n; the parts lie `step` apart.
template <class A, class To>
struct SumOfParts {
  int64_t count, n, step;
  const A* part;
  A beta;
  To* to;
  GRADUS_HD void write(int64_t i, A sum) const {
    to[i] = To(Compute<To>(sum + (beta == 0 ? A(0) : beta * A(to[i]))));
  }
};

}  // namespace gradus::norm
