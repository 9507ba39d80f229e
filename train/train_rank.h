#pragma once
// What one rank of `gradus train` does, from the model to the last checkpoint.
#include "train/checkpoint_reader.h"
#include "train/interrupt.h"
#include "train/options.h"
#include "train/ranks.h"
#include "train/run_data.h"

namespace gradus::train {

/// What a run begins with: nothing, the newest checkpoint of its directory, or the weights of another run.
struct Start {
  std::string directory;
  std::optional<CheckpointReader> from{};
  Settings settings{};
  std::optional<CheckpointReader> weights{};
};

/// What the ranks of this process share.
struct TrainingRun {
  const TrainRequest& request;
  const Start& start;
  const RunData& data;
  const Interrupt& interrupt;
};

/// Called by all ranks. The first one prints.
void train_rank(const parallel::Communicator& world, const TrainingRun& run);

/// The device of a rank: `name` as choose_device() reads it; the ranks of a machine share its GPUs out.
Device device_of(const std::string& name, const parallel::Communicator& world);

}  // namespace gradus::train
