#pragma once
// The derivative of gelu for ops that contain one.
#include "ops/ops.h"

namespace gradus {

/// dy ⊙ gelu'(x), not recorded.
Tensor gelu_backward(const Tensor& dy, const Tensor& x, GeluKind kind);
/// The same in recorded ops.
Tensor gelu_backward_recorded(const Tensor& dy, const Tensor& x, GeluKind kind);

}  // namespace gradus
