#pragma once
// The optimizer that the settings of a run ask for.
#include <memory>
#include <optional>

#include "optim/mixed_precision.h"
#include "train/settings.h"

namespace gradus::train {

/// Of the parameters of `module`, the model of the settings.
std::unique_ptr<optim::Optimizer> make_optimizer(const Settings& settings, nn::Module& module,
                                                 const optim::ArenaOptions& arena = {});

/// The loss scale of the settings: none unless the model is of f16.
std::optional<optim::GradScalerOptions> loss_scale(const Settings& settings);

}  // namespace gradus::train
