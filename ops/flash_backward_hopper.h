#pragma once
// The backward of flash attention with the instructions of Hopper: flash_backward_hopper.cu.
#include "ops/flash_attention.h"

namespace gradus {

/// Whether flash_backward_hopper takes these operands: compute capability 9.x, no lengths, no dropout,
/// and no operand repeats its elements by a stride of 0, which the copy engine does not read.
bool flash_backward_hopper_fits(const FlashInputs& in, const Tensor& d_o);

/// flash_backward by wgmma. Equal calls give equal bits.
Tensor flash_backward_hopper(const FlashInputs& in, const Tensor& o, const Tensor& lse,
                             const Tensor& d_o, const FlashGradients& to, bool wants_sums);

}  // namespace gradus
