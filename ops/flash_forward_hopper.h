#pragma once
// The forward of flash attention with the instructions of Hopper: flash_forward_hopper.cu.
#include "ops/flash_attention.h"

namespace gradus {

/// Whether flash_forward_hopper takes these operands: compute capability 9.x, no lengths, no dropout,
/// and no operand repeats its elements by a stride of 0, which the copy engine does not read.
bool flash_forward_hopper_fits(const FlashInputs& in, const Tensor& o);

/// flash_forward by wgmma. Equal calls give equal bits.
void flash_forward_hopper(const FlashInputs& in, const Tensor& o, const Tensor& lse);

}  // namespace gradus
