#pragma once
// Cross-entropy of rows of logits z (N, C) with targets t (N):
//
//   ℓ = lse(z) − z_t,    lse(z) = log Σ_j e^{z_j}        ∂lse/∂z = p = softmax(z)
//   dz = (p − onehot(t)) dℓ
//
// Label smoothing a asks for q = (1 − a) onehot(t) + a/C in place of onehot(t):
//
//   ℓ = −Σ_j q_j log p_j = lse(z) − (1 − a) z_t − a ⟨z⟩,    dz = (p − q) dℓ
//
// All of it is taken relative to m = max z, since large logits have few digits behind the point:
//
//   s = Σ_j e^{z_j − m},   ℓ = log s − (1 − a)(z_t − m) − a (⟨z⟩ − m),   p_j = e^{(z_j − m) − log s}
//
// The gradient is made while the row is at hand. dℓ is the same for all rows of a sum or a mean, and it
// is known but for what the loss is multiplied with later (1, as a rule):
//
//   dz_j = e^{z_j − m} (dℓ/s) − q_j dℓ
//
// which may overwrite z. So the logits are read once and written once. Where dℓ is not known (losses of
// rows), or the type has too few exponents for dℓ = 1/count (f16), m and log s are saved, and backward
// makes the gradient from them and z.
//
// A row of −∞ throughout has no p: its loss is +∞, its gradient 0, as by way of log_softmax.
#include "core/math.h"

namespace gradus::entropy {

template <class A>
constexpr A kInfinity = std::numeric_limits<A>::infinity();

/// m and log s of a row.
template <class A>
struct Scale {
  A max, log_sum;
};

/// N rows of C logits, what they are held against, and what forward leaves of each.
template <class T, class I>
struct Rows {
  using A = Compute<T>;
  int64_t rows, n;  // N, C
  const T* z;
  const I* target;
  int64_t ignored;
  A smoothing;
  Scale<A>* scale;           // may be null
  A* loss;                   // may be null
  T* dz = nullptr;           // if the gradient is made at once: where; may be z
  const A* dloss = nullptr;  // of all rows

  GRADUS_HD bool counts(int64_t r) const { return int64_t(target[r]) != ignored; }
  GRADUS_HD bool in_range(int64_t r) const { return target[r] >= 0 && int64_t(target[r]) < n; }
  GRADUS_HD bool has_loss(int64_t r) const { return counts(r) && in_range(r); }

  GRADUS_HD void write(int64_t r, A max, A sum, A sum_z, A z_t) const {
    const A log_sum = sum == 0 ? -kInfinity<A> : math::log(sum);
    A result = sum == 0 ? kInfinity<A> : log_sum;
    if (smoothing < 1) result -= (1 - smoothing) * (z_t - max);  // z_t may be −∞, and 0 · ∞ is NaN
    if (smoothing > 0) result -= smoothing * (sum_z / A(n) - max);
    if (loss) loss[r] = result;
    if (scale) scale[r] = {max, log_sum};
  }
  GRADUS_HD void write_uncounted(int64_t r) const {
    if (loss) loss[r] = 0;
    if (scale) scale[r] = {0, -kInfinity<A>};
  }
};

/// e^{z_j − m} ↦ dz_j, once m and s are known: e k − elsewhere, and less by `extra` at the target.
template <class A>
struct Gradient {
  A k = 0, elsewhere = 0, extra = 0;

  template <class T, class I>
  GRADUS_HD Gradient(const Rows<T, I>& in, A sum) {
    if (sum == 0) return;  // a row of −∞
    const A dloss = *in.dloss;
    k = dloss / sum;
    elsewhere = in.smoothing / A(in.n) * dloss;
    extra = (1 - in.smoothing) * dloss;
  }
  GRADUS_HD A operator()(A e, bool at_target) const {
    return e * k - elsewhere - (at_target ? extra : A(0));
  }
};

/// z_j ↦ dz_j from what was saved, in a row that has a gradient: not ignored, nor −∞ throughout.
template <class A>
struct Differentiate {
  Scale<A> row;
  int64_t target;
  A at_target, elsewhere;  // q
  A dloss;

  template <class T, class I>
  GRADUS_HD Differentiate(const Rows<T, I>& in, int64_t r, A dl)
      : row(in.scale[r]),
        target(in.target[r]),
        at_target(1 - in.smoothing + in.smoothing / A(in.n)),
        elsewhere(in.smoothing / A(in.n)),
        dloss(dl) {}
  GRADUS_HD A operator()(int64_t j, A z) const {
    A p = math::exp((z - row.max) - row.log_sum);
    return dloss * (p - (j == target ? at_target : elsewhere));
  }
};

/// dℓ of each row: dy (one for all rows, or one each) times `factor`.
template <class A>
struct RowGradient {
  const A* dy;
  bool one_each;
  const A* factor;
  GRADUS_HD A operator()(int64_t r) const { return dy[one_each ? r : 0] * *factor; }
};

/// What the losses of rows are summed up to: `scale` times their sum, or mean over the rows that count.
/// In double and in order.
template <class A, class I>
struct Total {
  int64_t rows;
  const A* loss;
  const I* target;
  int64_t ignored;
  bool mean;
  double scale;
  A* result;
  A* factor;  // of the loss of each row in the result

  GRADUS_HD void write_factor(double count) const {
    *factor = A(!mean ? scale : count == 0 ? 0 : scale / count);
  }
  GRADUS_HD void write(double sum, double count) const {
    *result = count == 0 ? A(0) : A(mean ? scale * sum / count : scale * sum);
  }
};

}  // namespace gradus::entropy
