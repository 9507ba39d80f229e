#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "train/commands.h"
#include "train/opening.h"
#include "train/run_directory.h"
#include "train/run_state.h"
#include "train/units.h"

namespace gradus::train {
namespace {

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string score_text(const std::optional<double>& score) {
  return score ? ", validation loss " + text(*score) : "";
}

// What other checkpoints the run has.
void print_run(std::ostream& out, const std::string& directory) {
  const CheckpointList list = list_checkpoints(directory);
  const auto best = best_step(list);
  for (const SavedStep& saved : list.complete)
    out << checkpoint_name(saved.step) << score_text(saved.score)
        << (saved.step == best ? "  (best)" : "") << "\n";
  if (!list.incomplete.empty()) out << list.warning() << "\n";
  out << "\n";
}

void print_tensors(std::ostream& out, const StoredTensors& tensors) {
  size_t widest = 0;
  for (const auto& [name, tensor] : tensors) widest = std::max(widest, name.size());
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t bytes = tensor.shape.numel() * size_of(tensor.dtype);
    out << name << std::string(widest + 2 - name.size(), ' ') << tensor.dtype << ' ' << tensor.shape
        << "  " << bytes_text(bytes) << "\n";
    total += bytes;
  }
  out << tensors.size() << " tensors, " << bytes_text(total) << "\n";
}

void print_checkpoint(std::ostream& out, const CheckpointReader& reader) {
  const CheckpointIndex& index = reader.index();
  const nlohmann::json& meta = reader.meta();
  out << reader.path() << ": step " << index.step << score_text(index.score) << "\n";
  if (meta.contains("validation_loss_all"))
    out << "over all held-out tokens: " << meta["validation_loss_all"] << "\n";
  const Settings settings = settings_of(reader);
  out << model_text(settings) << "\n\n";
  Settings::each_field(
      [&](const Setting& s, const auto& value) {
        if (nlohmann::json(value) != nlohmann::json(""))
          out << s.name << " = " << nlohmann::json(value) << "\n";
      },
      settings);
  out << "\n";
  print_tensors(out, index.tensors);
}

void info(const std::string& path, bool verify) {
  const std::string checkpoint = find_checkpoint(path);
  if (checkpoint != path) print_run(std::cout, path);
  const CheckpointReader reader(checkpoint);
  print_checkpoint(std::cout, reader);
  if (!verify) return;
  reader.verify();
  std::cout << "all hashes are as they were when it was written\n";
}

}  // namespace

int info_command(int argc, const char* const* argv) {
  std::string path;
  bool verify = false;
  CLI::App app("Prints what is in a checkpoint.", "gradus info");
  app.add_option("DIR", path, "a checkpoint, or a run: its newest one")->required();
  app.add_flag("--verify", verify, "read all of it and compare the hashes");
  return run_command(app, argc, argv, [&] { info(path, verify); });
}

}  // namespace gradus::train
