#pragma once
// Does a run do the same in every layout? `gradus train --check-layouts` takes one step of the model on
// each way to use some ranks, and compares the gradients with those of one rank (train/consistency.h).
#include <ostream>

#include "train/checkpoint_diff.h"
#include "train/run_data.h"

namespace gradus::train {

/// The settings on 1, 2, 4 … ranks, `most` at most, in every way that fits: tp × dp, with and without
/// sequence parallelism and ZeRO-1, in each of these numbers of micro-batches. The first one is of one rank.
std::vector<Settings> layouts_of(const Settings& settings, int64_t most,
                                 const std::vector<int64_t>& micro_batches);

/// "tp 2 × dp 2, sp, zero, 2 micro-batches".
std::string layout_text(const Settings& settings);

/// Takes `steps` steps from the first values on ranks that are threads, and saves them in `directory`.
/// `device`: see device_of in train/train_rank.h.
CheckpointReader train_layout(const Settings& settings, const TrainingData& data, int64_t steps,
                              const std::string& directory, const std::string& device = "cpu");

/// What makes the first moments of a step its gradients.
Settings for_gradients(Settings settings);

/// Compares all layouts with the first: prints a line for each and the table of those that differ. Whether all
/// agree.
bool check_layouts(const std::vector<Settings>& layouts, const TrainingData& data,
                   std::ostream& out, const std::string& device = "cpu");

}  // namespace gradus::train
