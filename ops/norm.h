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
// The same loops serve the sum of a residual stream and a branch (ops/add_norm.cu), x = s there:
//
//   s = x + m ⊙ (branch + bias)        ds is its gradient from past the norm, m a dropout mask or 1
//
// Note [mean of large numbers]
// A first mean m of entries near 10⁴ is wrong in its third decimal, which ε = 10⁻⁵ would blow up in
// a constant row. What is left, d = x − m, is small and exact:
//   μ = m + ⟨d⟩,   σ² = ⟨d²⟩ − ⟨d⟩²
// Any entry of the row can stand for m, at a price: (m − μ)² ≤ C σ², so σ² loses log₂ C of its 24 bits
// at worst. Where results have 8 or 11 bits, that saves a pass.
#include "core/math.h"
#include "ops/drop_mask.h"

namespace gradus::norm {

/// What backward needs to know of a row.
template <class A>
struct alignas(2 * sizeof(A)) Moments {
  A mean, r;
};

/// From d = x − m: the sums of d and d², of which each entry has the share 1/C. For RMS norm m = 0 and
/// `sum` is ignored.
template <class A>
GRADUS_HD Moments<A> moments(bool centred, A m, A sum, A squares, A share, A epsilon) {
  A shift = centred ? sum * share : A(0);
  A variance = squares * share - shift * shift;
  if (variance < 0) variance = 0;  // by rounding, in a constant row
  return {m + shift, math::rsqrt(variance + epsilon)};
}

/// x_i ↦ y_i. Not x r − μ r, one operation less: in a row of large and nearly equal entries r is large,
/// and so is the rounding error of μ r.
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
  A mean_g, slope;  // r ⟨g ⊙ x̂⟩
  GRADUS_HD Differentiate(Moments<A> of_row, A g, A gx)
      : row(of_row), mean_g(g), slope(of_row.r * gx) {}
  GRADUS_HD A operator()(A x, A dy, A gamma) const {
    return row.r * (gamma * dy - mean_g - (x - row.mean) * slope);
  }
};

// The work: rows of n entries.

template <class T>
struct Forward {
  int64_t rows, n;
  bool centred;
  Compute<T> epsilon;
  const T *x, *gamma, *beta;  // beta may be null
  T* y;
  Moments<Compute<T>>* moments;  // one a row
  // If a branch is added first (else null): sum is what is normalised, and the bias may be null.
  const T *branch = nullptr, *bias = nullptr;
  int64_t branch_rows = 0;  // if fewer than `rows`, the branch is repeated
  T* sum = nullptr;
  DropMask mask{};
  uint64_t first_element = 0;                        // of the whole that the mask is of
  Compute<T> share = Compute<T>(1) / Compute<T>(n);  // of an entry in a mean
};

/// The sums over rows are left in parts (number of parts, sums, n): dγ, dβ and, of a branch, the
/// gradient of its bias, each of some of the rows.
template <class T>
struct Backward {
  int64_t rows, n;
  bool centred;
  int sums = 2;             // 3 with a branch
  const T *x, *dy, *gamma;  // x: what was normalised
  const Moments<Compute<T>>* moments;
  T* dx;
  const T* ds = nullptr;
  T* dbranch = nullptr;  // written if the mask drops, else the same as dx
  DropMask mask{};
  uint64_t first_element = 0;
  Compute<T>* parts = nullptr;
  Compute<T> share = Compute<T>(1) / Compute<T>(n);
};

}  // namespace gradus::norm
