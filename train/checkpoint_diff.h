#pragma once
// The gradients of two checkpoints, compared. Adam's first moment is the gradient of the last step where
// β₁ = 0, so files suffice: any two programs, layouts or options that ought to agree can be compared,
// without access to either.
#include "train/checkpoint_reader.h"
#include "train/consistency.h"
#include "train/settings.h"

namespace gradus::train {

struct DiffOptions {
  std::string kind = "m";         // of an optimizer's tensors: m, v, master …; or "parameters"
  std::optional<double> bound{};  // for all tensors and numbers, in place of the derived one
};

/// Compares tensors, and the loss, norm and targets of the last step. Error when the two are of other
/// steps or of other models.
ConsistencyReport diff(const CheckpointReader& left, const CheckpointReader& right,
                       const DiffOptions& options = {});

/// Why the first moments of a run with these settings are not its gradients, and what to do about it, a
/// sentence each; empty when they are.
std::vector<std::string> gradient_caveats(const Settings& settings);

}  // namespace gradus::train
