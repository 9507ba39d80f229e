#include "train/checkpoint_directory.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/check.h"
#include "train/checkpoint_reader.h"

namespace gradus::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDamagedSuffix = ".damaged";

bool is_unfinished(const std::string& name) {
  return name.starts_with("step_") && name.ends_with(kTemporarySuffix);
}

// The step in "step_00000100", or nothing for any other name.
std::optional<int64_t> step_in(const std::string& name) {
  long long step = -1;
  if (std::sscanf(name.c_str(), "step_%lld", &step) != 1 || step < 0) return std::nullopt;
  if (checkpoint_name(step) != name) return std::nullopt;
  return step;
}

bool is_complete(const std::string& path) {
  try {
    CheckpointReader reader(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::error_code ignored;
  check(!error || !fs::exists(directory, ignored), "cannot list ", directory, ": ",
        error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof(name), "step_%08lld", static_cast<long long>(step));
  return name;
}

std::string checkpoint_path(const std::string& directory, int64_t step) {
  return directory + "/" + checkpoint_name(step);
}

std::string CheckpointList::warning() const {
  std::string line;
  for (const std::string& name : incomplete) line += (line.empty() ? "" : ", ") + name;
  return line.empty() ? "" : "incomplete checkpoints are passed over: " + line;
}

CheckpointList list_checkpoints(const std::string& directory) {
  CheckpointList list;
  for (const std::string& name : names_in(directory)) {
    const auto step = step_in(name);
    if (is_unfinished(name)) list.incomplete.push_back(name + " (interrupted)");
    if (!step) continue;
    try {
      list.complete.push_back({*step, CheckpointReader(directory + "/" + name).index().score});
    } catch (const Error& error) {
      list.incomplete.push_back(name + " (" + error.what() + ")");
    }
  }
  std::sort(list.complete.begin(), list.complete.end(),
            [](const SavedStep& a, const SavedStep& b) { return a.step < b.step; });
  return list;
}

int64_t latest_step(const CheckpointList& list, const std::string& directory) {
  std::error_code ignored;
  check(!list.complete.empty(), "no complete checkpoint in ", directory,
        fs::exists(directory, ignored) ? "" : " (which does not exist)",
        list.incomplete.empty() ? "" : "; ", list.warning());
  return list.complete.back().step;
}

std::optional<int64_t> best_step(const CheckpointList& list) {
  const SavedStep* best = nullptr;
  for (const SavedStep& saved : list.complete)
    if (saved.score && (!best || *saved.score < *best->score)) best = &saved;
  return best ? std::optional(best->step) : std::nullopt;
}

void prune_checkpoints(const std::string& directory, int keep_last, const Disk& disk) {
  check(keep_last >= 1, "at least one checkpoint must be kept, got ", keep_last);
  const CheckpointList list = list_checkpoints(directory);
  const auto best = best_step(list);
  for (size_t i = 0; i + size_t(keep_last) < list.complete.size(); ++i) {
    const int64_t step = list.complete[i].step;
    if (best == step) continue;
    // Renamed first: a removal that is cut short must not look like a damaged checkpoint.
    const std::string path = checkpoint_path(directory, step), doomed = path + kTemporarySuffix;
    disk.rename(path, doomed);
    disk.remove_all(doomed);
  }
}

void set_damaged_aside(const std::string& directory, int64_t step, const Disk& disk) {
  const std::string path = checkpoint_path(directory, step);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  check(!is_complete(path), "step ", step, " is already saved in ", path,
        "; choose another directory, or remove it");
  disk.remove_all(path + kDamagedSuffix);
  disk.rename(path, path + kDamagedSuffix);
}

void remove_unfinished(const std::string& directory, const Disk& disk) {
  for (const std::string& name : names_in(directory))
    if (is_unfinished(name)) disk.remove_all(directory + "/" + name);
}

void replace_file(const std::string& path, const std::string& text, const Disk& disk) {
  const std::string temporary = path + kTemporarySuffix;
  disk.remove_all(temporary);  // left by a crash
  try {
    disk.write_file(temporary, text);
    disk.rename(temporary, path);
    disk.sync_directory(fs::absolute(path).parent_path().string());
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace gradus::train
