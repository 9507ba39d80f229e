#pragma once
// What tests of several ranks share. Ranks are threads; nothing here is CUDA.
#include "ops/ops.h"
#include "parallel/communicator.h"

namespace gradus::parallel {

/// Normal values in f64 that depend on `seed` alone: with equal seeds, equal on all ranks.
inline Tensor random_values(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return normal(shape, generator, 0, 1, DType::f64);
}

/// Σ a_i b_i
inline double dot(const Tensor& a, const Tensor& b) {
  return sum(mul(a.detach(), b.detach())).item();
}

/// Σ_r x_r of a number on each rank.
inline double over_ranks(const Communicator& group, double x) {
  return group.all_reduce(full({}, x, DType::f64)).item();
}

/// The largest |a − b| of a row (of the first dimension) relative to the largest |b| of the tensor.
inline double row_error(const Tensor& a, const Tensor& b) {
  Tensor error = a.detach() - b.detach();
  const double size = max(abs(b.detach())).item();
  return max(abs(error)).item() / (size > 0 ? size : 1);
}

}  // namespace gradus::parallel
