#pragma once
// The sizes of a run's model.
#include "models/bert_config.h"
#include "models/config.h"
#include "train/settings.h"

namespace gradus::train {

/// Error unless the family is gpt2 or llama.
GptConfig config_of(const Settings& settings);

/// Of a run of the family bert.
BertConfig bert_config_of(const Settings& settings);

}  // namespace gradus::train
