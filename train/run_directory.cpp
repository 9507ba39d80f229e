#include "train/run_directory.h"

#include <filesystem>

#include "core/check.h"
#include "train/checkpoint_index.h"

namespace gradus::train {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// RUNS/NAME, RUNS/NAME-2, RUNS/NAME-3, …
std::string numbered(const std::string& runs, const std::string& name, int number) {
  std::string path = runs + "/" + name;
  if (number > 1) path.append("-").append(std::to_string(number));
  return path;
}

int first_free(const std::string& runs, const std::string& name) {
  int number = 1;
  while (exists(numbered(runs, name, number))) ++number;
  return number;
}

}  // namespace

std::string name_of_data(const std::string& path) {
  std::string name = fs::path(path).stem().string();
  name = name.substr(0, name.find_first_of("*?["));
  while (!name.empty() && (name.back() == '_' || name.back() == '-' || name.back() == '.'))
    name.pop_back();
  return name.empty() ? "run" : name;
}

std::string new_run(const std::string& out, const std::string& name, const std::string& runs) {
  if (out.empty()) return numbered(runs, name, first_free(runs, name));
  const CheckpointList list = list_checkpoints(out);
  check(list.complete.empty(), "", out, " holds a run already, saved up to step ",
        list.complete.empty() ? 0 : list.complete.back().step,
        "; go on with it by --resume, or choose another --out");
  return out;
}

std::string existing_run(const std::string& out, const std::string& name, const std::string& runs) {
  const int free = first_free(runs, name);
  check(!out.empty() || free > 1, "no run to resume: ", numbered(runs, name, 1),
        " does not exist; name the directory with --out");
  return out.empty() ? numbered(runs, name, free - 1) : out;
}

std::string find_checkpoint(const std::string& path) {
  if (exists(path + "/" + kIndexFile)) return path;
  return checkpoint_path(path, latest_step(list_checkpoints(path), path));
}

}  // namespace gradus::train
