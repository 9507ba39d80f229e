#pragma once
// Where runs live.
#include <string>

#include "train/checkpoint_directory.h"

namespace gradus::train {

inline constexpr const char* kMetricsFile = "metrics.jsonl";

/// "kjv" for build/data/kjv.txt, "train" for data/train_*.bin.
std::string name_of_data(const std::string& path);

/// Directory of a new run: `out`, which must hold no checkpoint; or else the first of RUNS/NAME,
/// RUNS/NAME-2, … that does not exist. Nothing is made.
std::string new_run(const std::string& out, const std::string& name,
                    const std::string& runs = "runs");

/// Directory of a run to go on with: `out`, or the last of RUNS/NAME, RUNS/NAME-2, … Error when it
/// does not exist.
std::string existing_run(const std::string& out, const std::string& name,
                         const std::string& runs = "runs");

/// The checkpoint that `path` means: itself, or the newest complete one of the run in it.
std::string find_checkpoint(const std::string& path);

}  // namespace gradus::train
