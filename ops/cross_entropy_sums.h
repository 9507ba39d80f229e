#pragma once
// From the losses of rows to one number, for every op that makes such losses.
#include "ops/ops.h"

namespace gradus::entropy {

/// factor ← what a row's loss is multiplied with in the result: `scale`, or scale / count for a mean.
/// targets (N) contiguous; `factor` a number of the type that losses have.
void write_factor(const Tensor& targets, const CrossEntropyOptions& options, const Tensor& factor);

/// total ← the sum or mean of losses (N) over the targets that count, times `scale`.
void write_total(const Tensor& losses, const Tensor& targets, const CrossEntropyOptions& options,
                 const Tensor& total);

/// Error unless there are floating logits (…, C) and integer targets (…) on one device, and options that
/// can be.
void check_operands(const Tensor& logits, const Tensor& targets,
                    const CrossEntropyOptions& options);

}  // namespace gradus::entropy
