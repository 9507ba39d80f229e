#pragma once
#include <string>

#include "core/device.h"
#include "train/run_data.h"

namespace gradus::train {

/// What a run is about to do, for people: data, machine, model, arithmetic, steps, checkpoints.
std::string opening(const Settings& settings, const RunData& data, Device device,
                    int64_t parameters, int64_t first_step, const std::string& directory);

/// "llama-small: 4 layers, width 128, 4 heads, …": the model of some settings.
std::string model_text(const Settings& settings);

}  // namespace gradus::train
