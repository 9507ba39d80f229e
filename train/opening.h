#pragma once
#include <string>

#include "core/device.h"
#include "train/run_data.h"
#include "train/run_state.h"

namespace gradus::train {

/// What a run is about to do, for people: data, machine, model, arithmetic, steps, checkpoints.
std::string opening(const Settings& settings, const RunData& data, Device device,
                    int64_t parameters, int64_t first_step, const std::string& directory);

/// Which rank is which and what each holds, a line each, after a new line; "" on one rank. Called by all.
std::string ranks_text(const RunState& state, const Settings& settings);

/// "llama-small: 4 layers, width 128, 4 heads, …": the model of some settings.
std::string model_text(const Settings& settings);

}  // namespace gradus::train
