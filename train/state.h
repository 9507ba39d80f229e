#pragma once
// The tensors of a training state in a checkpoint: parameters under their own names, what an optimizer
// keeps of each under optimizer.KIND.NAME. Each is stored as the part of the whole that it is:
//
//   this rank's memory (4, 3)            in the whole (8, 3), Shard{dim 0, rank 1, ranks 2, pieces 2}
//     rows 0, 1  ───────────────────▶    rows 2, 3  ┐ gate
//     rows 2, 3  ───────────────────▶    rows 6, 7  ┘ up
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_writer.h"

namespace gradus::train {

struct StateTensor {
  std::string name;
  Tensor tensor;
  nn::Shard shard;

  Shape global_shape() const;
};

/// The parameters of a module, each once.
std::vector<StateTensor> parameters_of(nn::Module& module);

/// Where the pieces of a shard lie: `here` in the tensor of this rank, `global` in the whole.
struct ShardPiece {
  Box here, global;
};
std::vector<ShardPiece> pieces_of(const Shape& local, const nn::Shard& shard);

/// Copies the tensors, from any device, into the checkpoint.
void save_state(CheckpointWriter& writer, std::span<const StateTensor> state);

/// Overwrites the tensors in place, on their device. The layout that saved them may have been another.
/// After an Error all of them are as they were (see CheckpointReader::load).
void load_state(const CheckpointReader& reader, std::span<const StateTensor> state,
                Unexpected unexpected = Unexpected::error);

}  // namespace gradus::train
