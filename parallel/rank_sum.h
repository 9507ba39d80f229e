#pragma once
// y_i = Σ_k x_k,i over the parts of several ranks.
#include <array>

#include "autograd/tensor.h"

namespace gradus::parallel {

inline constexpr int kMostParts = 8;

struct Parts {
  std::array<const void*, kMostParts> from{};
  int n = 0;
};

/// y ← Σ_k from_k, in the order of k, in f32 (f64 for f64) and rounded once. On a GPU; y is contiguous, and
/// may be one of the parts.
void sum_over_ranks(const Tensor& y, const Parts& parts);

}  // namespace gradus::parallel
