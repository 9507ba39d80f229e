#pragma once
// Models in the form of Hugging Face's transformers (config.json, model.safetensors), taken in as the
// first checkpoint of a run, and written from one.
#include <string>

namespace gradus::train {

/// Makes the run `run` from the model in `directory`: step 0, weights only. They keep their type when
/// all have f32 or all bf16; others become f32, which holds each value exactly. Returns the checkpoint.
/// Error listing every tensor that is missing, unexpected, or of a shape that config.json does not give.
std::string import_hf(const std::string& directory, const std::string& run);

/// Writes config.json and model.safetensors to `directory`, from a checkpoint or the newest one of a
/// run. Error when they are there.
void export_hf(const std::string& run, const std::string& directory);

}  // namespace gradus::train
