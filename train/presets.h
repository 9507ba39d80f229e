#pragma once
// Models by name, each with training settings that suit it.
#include <string>

#include "train/settings.h"

namespace gradus::train {

/// The preset that is trained when none is asked for: one that takes minutes on the device.
std::string default_preset(bool on_gpu);

/// The sizes of GptConfig's or BertConfig's preset, with a recipe. Error when there is no model of
/// that name.
Settings preset(const std::string& name);

std::vector<std::string> preset_names();

}  // namespace gradus::train
