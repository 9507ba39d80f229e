#pragma once
// The tensors of a training state in a checkpoint: parameters under their own names, what an optimizer
// keeps of each under optimizer.KIND.NAME. Each is stored as the part of the whole that it is:
//
//   this rank's memory (4, 3)            in the whole (8, 3), Shard{dim 0, rank 1, ranks 2, pieces 2}
//     rows 0, 1  ───────────────────▶    rows 2, 3  ┐ gate
//     rows 2, 3  ───────────────────▶    rows 6, 7  ┘ up
//
// A tensor of an optimizer may be a run of elements of the shard, since slices of an arena end wherever
// they do (optim/arena_layout.h); it becomes a few boxes. What is padding in a shard is not stored.
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"
#include "optim/split_master.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_writer.h"

namespace gradus::train {

/// Elements [begin, end) of a shard, counted row by row.
struct ShardRange {
  Shape shard;
  int64_t begin = 0, end = 0;
};

struct StateTensor {
  std::string name;
  optim::StateView tensor;  // contiguous
  nn::Shard shard;
  std::optional<ShardRange> range{};  // what of the shard it is, if that is not all
  bool is_written = true;             // here, not by another rank that holds the same

  Shape local_shape() const { return range ? range->shard : tensor.shape(); }
  Shape global_shape() const;
};

/// The parameters of a module, each once.
std::vector<StateTensor> parameters_of(nn::Module& module);

/// Where the pieces of a shard lie: `here` in the tensor of this rank, `global` in the whole.
struct ShardPiece {
  Box here, global;
};
std::vector<ShardPiece> pieces_of(const Shape& local, const nn::Shard& shard);

/// Copies the tensors, from any device, into the checkpoint, or into this rank's file of it.
void save_state(CheckpointWriter& writer, std::span<const StateTensor> state);
void save_state(BoxFile& file, std::span<const StateTensor> state);

/// Overwrites the tensors in place, on their device. The layout that saved them may have been another.
/// `elsewhere`: names that other ranks load. After an Error all of them are as they were (see
/// CheckpointReader::load).
void load_state(const CheckpointReader& reader, std::span<const StateTensor> state,
                Unexpected unexpected = Unexpected::error,
                const std::set<std::string>& elsewhere = {});

}  // namespace gradus::train
