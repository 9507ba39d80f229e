#pragma once
// A training run of a model with a few thousand parameters on a made-up text, in milliseconds.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/train/helpers.h"
#include "train/machine.h"
#include "train/run_data.h"
#include "train/run_directory.h"
#include "train/trainer.h"

namespace gradus::train {

/// Words that follow each other by a simple rule, so that there is something to learn.
inline std::string made_up_text(size_t bytes) {
  constexpr const char* kWords[] = {"the ", "cat ", "sat ", "on ", "a ", "mat.\n", "dog ", "ran "};
  std::string text;
  for (uint64_t i = 0, word = 0; text.size() < bytes; ++i) {
    text += kWords[word];
    word = (word + 1 + mix(i) % 2) % 8;
  }
  text.resize(bytes);
  return text;
}

/// Settings of the tiny model; the text is written to `directory`.
inline Settings tiny_settings(const TemporaryDirectory& directory, const std::string& family) {
  Choices c;
  c.model = family == "llama" ? "llama-tiny" : "gpt-tiny";
  c.text = write_text(directory / "text.txt", made_up_text(6000));
  c.layers = 2, c.width = 16, c.heads = 2, c.kv_heads = family == "llama" ? 1 : 2, c.ffn = 32;
  c.length = 16, c.batch = 4, c.accumulate = 2, c.dropout = 0.1, c.holdout = 0.1;
  c.steps = 12, c.lr = 1e-2, c.warmup = 2, c.eval_every = 3, c.save_every = 5, c.eval_tokens = 200;
  Settings s = resolve(c, false);
  validate(s);
  return s;
}

/// A run as the program makes it.
struct TinyRun {
  Settings settings;
  RunData data;
  RunState state;
  std::ostringstream shown;
  ProgressDisplay display{shown, [] { return 0; }};

  explicit TinyRun(Settings s, Device device = kCpu)
      : settings(std::move(s)), data(open_data(settings)), state(settings, device) {
    use_threads(1);  // its tensors are too small to share
  }
  ~TinyRun() { use_threads(0); }

  /// Begins in `directory` or goes on from its newest checkpoint.
  Outcome run(const std::string& directory, TrainerOptions options = {}) {
    const CheckpointList list = list_checkpoints(directory);
    if (!list.complete.empty())
      state.load(CheckpointReader(checkpoint_path(directory, list.complete.back().step)));
    Disk{}.make_directory(directory);
    options.directory = directory;
    return Trainer(settings, *data.training, *data.validation, state, display, options).run();
  }
};

/// The metrics of a run, a JSON object for each step, without what depends on the clock.
inline std::vector<nlohmann::json> metrics_of(const std::string& directory) {
  std::vector<nlohmann::json> lines;
  std::istringstream file(read_text(directory + "/" + kMetricsFile));
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
    for (const char* timed : {"tokens_per_second", "memory", "mfu", "mfu_full"})
      lines.back().erase(timed);
  }
  return lines;
}

/// The metrics of runs whose batches are cut into 1, 2 and 4 micro-batches.
inline std::vector<std::vector<nlohmann::json>> metrics_by_micro_batches(
    Settings s, const TemporaryDirectory& d) {
  std::vector<std::vector<nlohmann::json>> metrics;
  for (int64_t accumulate : {1, 2, 4}) {
    s.accumulate = accumulate;
    TinyRun(s).run(d / std::to_string(accumulate));
    metrics.push_back(metrics_of(d / std::to_string(accumulate)));
  }
  return metrics;
}

/// Hash of every tensor in a checkpoint, by name.
inline std::map<std::string, std::string> hashes_of(const std::string& checkpoint) {
  std::map<std::string, std::string> hashes;
  const CheckpointReader reader(checkpoint);
  for (const auto& [name, tensor] : reader.index().tensors)
    for (const StoredBox& box : tensor.boxes) hashes[name] += box.hash;
  return hashes;
}

}  // namespace gradus::train
