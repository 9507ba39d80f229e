#pragma once
// Gradients of what all rows of a matrix share, γ, β and a bias: sums over its rows. A kernel leaves
// sums of some of the rows each, and these parts are added in a fixed order: the same bits on each run.
#include <vector>

#include "autograd/node.h"

namespace gradus {

/// Σ_p parts[p, k] for parts (number, K, n) and each k < K, in `dtype`. Undefined where it is not needed
/// or was added to the parameter's main gradient.
std::vector<Tensor> sum_parts(const Tensor& parts, DType dtype, const std::vector<Need>& needs);

}  // namespace gradus
