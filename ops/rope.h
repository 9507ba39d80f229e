#pragma once
// Rotary positions on raw tensors: what rope() and self_attention() call.
#include "ops/ops.h"

namespace gradus {

/// y ← x (…, T, d) turned by its positions, or turned back. Of up to five dimensions the strides are
/// arbitrary but for the last, which is 1; beyond that x and y are contiguous. y may be x itself.
void rotate_into(const Tensor& y, const Tensor& x, RopeOptions options, bool back = false);

}  // namespace gradus
