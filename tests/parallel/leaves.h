#pragma once
// Leaves and a loss whose gradients are known, for tests of what data ranks send each other.
#include "ops/ops.h"

namespace gradus::parallel {

using Values = std::vector<double>;

inline Tensors leaves(int count) {
  Tensors list;
  for (int i = 0; i < count; ++i) list.push_back(ones({3}, DType::f64).requires_grad_());
  return list;
}

/// The gradient of leaf i becomes c (i + 1); those that are left out have none.
inline Tensor loss_of(const Tensors& list, double c, int left_out = -1) {
  Tensor loss = zeros({}, DType::f64);
  for (int i = 0; i < int(list.size()); ++i)
    if (i != left_out) loss = loss + sum(list[size_t(i)]) * (c * (i + 1));
  return loss;
}

}  // namespace gradus::parallel
