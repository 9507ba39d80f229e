#pragma once
// Which elements dropout keeps (see ops/dropout.cu), for every kernel that drops some.
#include "core/random.h"

namespace gradus {

/// Element i is kept when word i of `stream` reaches `threshold` = p 2³², and grows by 1/(1 − p).
struct DropMask {
  Philox stream{};
  uint64_t threshold = 0;
  double scale = 1;

  DropMask() = default;
  DropMask(Philox s, double p) : stream(s), threshold(drop_threshold(p)), scale(1 / (1 - p)) {}
  GRADUS_HD bool drops() const { return threshold > 0; }

  /// x of the element whose word is `word`. What is dropped is 0, not x times 0, which would be NaN
  /// for an infinite x.
  template <class A>
  GRADUS_HD A operator()(uint32_t word, A x) const {
    return word >= threshold ? x * A(scale) : A(0);
  }
};

}  // namespace gradus
