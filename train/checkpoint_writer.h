#pragma once
// Saves a checkpoint so that a crash, a full disk or a power cut at any moment leaves the run with the
// checkpoints it had, or with those and the new one, and never with half of one.
//
//   DIRECTORY/step_00000100.tmp/   rank_0.bin …, index.json       written and synced
//                                  read back, every hash compared
//                    │ rename (atomic), sync DIRECTORY
//                    ▼
//   DIRECTORY/step_00000100/       from here on it exists
//   DIRECTORY/latest               names it; for people and scripts, nothing here reads it
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "train/checkpoint_index.h"
#include "train/disk.h"

namespace gradus::train {

/// The file in which one rank writes its boxes.
class BoxFile {
 public:
  BoxFile(const Disk& disk, const std::string& directory, const std::string& name);

  /// Appends box `box` of tensor `name`, whose whole shape is `shape`. `data` is contiguous, in host
  /// memory, and may be freed at once. Error when the box does not lie inside the tensor.
  void add(const std::string& name, DType dtype, const Shape& shape, const Box& box,
           const void* data);

  /// Syncs the file. What is in it: to be merged into the checkpoint's index.
  StoredTensors finish();

 private:
  OutputFile file_;
  std::string name_;
  StoredTensors tensors_;
};

class CheckpointWriter {
 public:
  /// Makes `directory` where it does not exist and removes what interrupted saves left in it. Error
  /// when step `step` is already there.
  CheckpointWriter(std::string directory, int64_t step, Disk disk = {});
  CheckpointWriter(const CheckpointWriter&) = delete;
  /// Removes the unfinished directory when publish() has not succeeded.
  ~CheckpointWriter();

  /// A whole tensor, or one box of it, into this process's file.
  void add(const std::string& name, DType dtype, const Shape& shape, const void* data);
  void add(const std::string& name, DType dtype, const Shape& shape, const Box& box,
           const void* data);

  /// Where other ranks put their BoxFile before publish().
  const std::string& temporary_directory() const { return temporary_; }
  void add(const StoredTensors& written_by_another_rank);

  /// Writes the index, verifies all that was written, publishes. Error when the boxes of a tensor do
  /// not fill it exactly once. Returns the checkpoint's path.
  std::string publish(const nlohmann::json& meta, std::optional<double> score = {});

 private:
  void write_index();
  void verify() const;

  Disk disk_;
  std::string directory_, published_, temporary_;
  CheckpointIndex index_;
  std::optional<BoxFile> boxes_;
  bool done_ = false;
};

}  // namespace gradus::train
