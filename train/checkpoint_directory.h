#pragma once
// The checkpoints of a run: which are there, which is the latest and the best, which may go.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/disk.h"

namespace gradus::train {

inline constexpr const char* kTemporarySuffix = ".tmp";

/// "step_00000100", and the same below `directory`.
std::string checkpoint_name(int64_t step);
std::string checkpoint_path(const std::string& directory, int64_t step);

struct SavedStep {
  int64_t step = 0;
  std::optional<double> score;
};

struct CheckpointList {
  std::vector<SavedStep> complete;      // oldest first
  std::vector<std::string> incomplete;  // "step_00000200 (reason)": interrupted or damaged

  /// One line that names the incomplete ones; empty when there are none.
  std::string warning() const;
};

/// A checkpoint is complete when its index is intact and all its files are there at full length; the
/// hashes of tensors are compared by whoever reads them. A missing directory has no checkpoints.
CheckpointList list_checkpoints(const std::string& directory);

/// The newest complete step. Error, with the directory's content in words, when there is none.
int64_t latest_step(const CheckpointList& list, const std::string& directory);

/// The complete step with the lowest score (the older one of equals), if any has a score.
std::optional<int64_t> best_step(const CheckpointList& list);

/// Removes complete checkpoints except the newest `keep_last` (at least one) and the best.
void prune_checkpoints(const std::string& directory, int keep_last, const Disk& disk = {});

/// Renames a damaged checkpoint of that step, if there is one, to step_….damaged, so that the step can
/// be saved again. Error when the step is there and complete.
void set_damaged_aside(const std::string& directory, int64_t step, const Disk& disk);

/// Removes what interrupted saves and removals left.
void remove_unfinished(const std::string& directory, const Disk& disk);

/// Gives a file new content: readers see the old one or the new one, whole.
void replace_file(const std::string& path, const std::string& text, const Disk& disk);

}  // namespace gradus::train
