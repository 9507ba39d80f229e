#pragma once
// Losses as a sum and a count, so that they can be added over micro-batches and ranks before the one
// division: the mean of means would weigh a part with few targets like one with many.
#include "ops/ops.h"

namespace gradus::nn {

/// Σ losses and the number of terms, on the device; both of one element.
struct LossSum {
  Tensor sum;    // recorded
  Tensor count;  // of the type of the sum, without history

  /// sum / max(count, 1): 0, with gradient 0, where nothing was counted.
  Tensor mean() const;
};

/// Cross-entropy of logits (…, C) and targets (…), over the targets that are not ignored.
LossSum cross_entropy_sum(const Tensor& logits, const Tensor& targets,
                          CrossEntropyOptions options = {});

/// Σ mᵢ lᵢ and Σ mᵢ, for losses and a mask (floating, or u8) of one shape. A loss where m = 0 may be
/// anything, NaN included.
LossSum masked_sum(const Tensor& losses, const Tensor& mask);

}  // namespace gradus::nn
