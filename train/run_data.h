#pragma once
// The data of a run: opened, checked and split before anything else is done.
#include <string>

#include "train/dataset.h"
#include "train/settings.h"
#include "train/tokenizer.h"

namespace gradus::train {

struct RunData {
  std::unique_ptr<const TrainingData> training;
  std::unique_ptr<const ValidationData> validation;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string description;  // one line for people
};

/// The file or pattern that holds a run's data.
const std::string& data_path(const Settings& settings);

/// Opens the data. A vocabulary that is not set becomes that of the format, to a multiple of 128. A
/// tokenizer is learned or read, or taken from `run`, the directory of a run that goes on. Error when
/// the data cannot be read, is of another format than the option says, is too short, or has an id that
/// is too large.
RunData open_data(Settings& settings, const std::string& run = "");

}  // namespace gradus::train
