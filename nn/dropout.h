#pragma once
#include "nn/module.h"
#include "ops/ops.h"

namespace gradus::nn {

/// In training, y = x m/(1 − p) with m ~ Bernoulli(1 − p): an element is dropped with probability p,
/// and the others grow, so that the mean stays. In evaluation, y = x.
struct Dropout final : Module {
  double p;

  explicit Dropout(double p) : p(p) {
    check(p >= 0 && p <= 1, "Dropout: a probability is needed, 0 ≤ p ≤ 1, got ", p);
  }
  bool drops() const { return training && p > 0; }
  /// `generator` is where the masks come from; it may be null when nothing is dropped. `elements` says
  /// which elements of a whole x is.
  Tensor operator()(const Tensor& x, Generator* generator, const IndexMap& elements = {}) const {
    return drops() ? dropout(x, p, next_mask(generator), elements) : x;
  }
  /// The stream of the next mask, for an op that drops on the way.
  Philox next_mask(Generator* generator) const {
    check(generator, "dropout with p = ", p,
          " in training needs a generator: pass one, or call eval() of the module");
    return generator->next();
  }
  void fields(Fields&) override {}
};

}  // namespace gradus::nn
