#pragma once
// Cross-entropy of logits z (N, V) whose columns are cut over n ranks (ops/cross_entropy.h has the formulas).
// Each rank reduces the columns that it has,
//
//   m_r = max z,   s_r = Σ e^{z − m_r},   t_r = z at the target, 0 if that is elsewhere,   u_r = Σ z
//
// all ranks exchange these four numbers in one message, and each joins them in the order of ranks:
//
//   m = max_r m_r,   s = Σ_r s_r e^{m_r − m},   z_t = Σ_r t_r,   ⟨z⟩ = Σ_r u_r / V
//   ℓ = log s − (1 − a)(z_t − m) − a (⟨z⟩ − m)
//
// so that all have the same bits. Backward needs no message: dz_j = (e^{z_j − m − log s} − q_j) dℓ, with the
// smoothing a/V of the whole vocabulary. Columns beyond the vocabulary (padding of the last ranks) take no
// part: as if z = −∞ there.
#include "ops/cross_entropy.h"

namespace gradus::parallel {

/// What a rank knows of a row.
template <class A>
struct RowPart {
  A max = std::numeric_limits<A>::lowest(), sum = 0, target = 0, sum_z = 0;
};

/// Rows of all ranks: the smoothing is over `n` = V, z and dz are this rank's columns of them.
template <class T, class I>
struct VocabRows : entropy::Rows<T, I> {
  using A = Compute<T>;
  int64_t vocabulary = 0;             // V: targets are below it
  int64_t width = 0;                  // columns from one row to the next
  int64_t real = 0;                   // of them, how many are not padding
  int64_t first = 0;                  // number of the first in the vocabulary
  RowPart<A>* part = nullptr;         // (N): of this rank
  const RowPart<A>* parts = nullptr;  // (ranks, N)
  int ranks = 1;

  GRADUS_HD bool in_range(int64_t r) const {
    return uint64_t(int64_t(this->target[r])) < uint64_t(vocabulary);
  }
  GRADUS_HD bool has_loss(int64_t r) const { return this->counts(r) && in_range(r); }
  GRADUS_HD const T* row(int64_t r) const { return this->z + r * width; }
  /// Which column here is the target of row r; not in [0, real) if it is elsewhere.
  GRADUS_HD int64_t column(int64_t r) const { return int64_t(this->target[r]) - first; }
  GRADUS_HD bool owns(int64_t r) const { return uint64_t(column(r)) < uint64_t(real); }

  /// The loss of row r and what its gradient needs, from the parts of all ranks.
  GRADUS_HD void join(int64_t r) const {
    if (!has_loss(r)) return this->write_uncounted(r);
    RowPart<A> all;
    for (int k = 0; k < ranks; ++k) {
      const A m = parts[k * this->rows + r].max;
      all.max = m > all.max ? m : all.max;
    }
    for (int k = 0; k < ranks; ++k) {
      const RowPart<A>& p = parts[k * this->rows + r];
      all.sum += p.sum * math::exp(p.max - all.max);
      all.target += p.target;
      all.sum_z += p.sum_z;
    }
    this->write(r, all.max, all.sum, all.sum_z, all.target);
  }
};

}  // namespace gradus::parallel
