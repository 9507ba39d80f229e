// gradus train: in this order, so that a mistake costs nothing: options, data, the place for results
// (looked at, not made), the device, the model in memory, and only then directories and steps.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "nn/summary.h"
#include "ops/gemm_tuning.h"
#include "train/commands.h"
#include "train/generate.h"
#include "train/interrupt.h"
#include "train/machine.h"
#include "train/opening.h"
#include "train/options.h"
#include "train/profile.h"
#include "train/run_directory.h"
#include "train/trainer.h"

namespace gradus::train {
namespace {

void check_request(const TrainRequest& r) {
  check(r.stop_at >= 0, "--stop-at must be positive, got ", r.stop_at);
  check(r.profile.empty() || !r.cuda_graph,
        "--profile measures ops one by one, which a CUDA graph does not launch: leave out one");
  check(r.init.empty() || !r.resume,
        "--resume goes on with the weights of the run: leave --init out");
  check(r.sample >= 0, "--sample must not be negative, got ", r.sample);
}

std::string data_name(const Choices& c) {
  return name_of_data(c.text.value_or(c.data.value_or("")));
}

// What a run begins with: nothing, the newest checkpoint of its directory, or the weights of another run.
struct Start {
  std::string directory;
  std::optional<CheckpointReader> from;
  Settings settings;
  std::optional<CheckpointReader> weights{};
};

Start fresh_start(const TrainRequest& r, bool on_gpu) {
  Start start;
  if (!r.init.empty()) start.weights.emplace(find_checkpoint(r.init));
  start.settings = start.weights
                       ? resolve_with_model(settings_of(*start.weights), r.choices, on_gpu)
                       : resolve(r.choices, on_gpu);
  validate(start.settings);
  return start;
}

Start resumed_start(const TrainRequest& r) {
  check(!r.out.empty() || r.choices.text || r.choices.data,
        "--resume needs to know which run: name its directory with --out");
  const std::string directory = existing_run(r.out, data_name(r.choices));
  const CheckpointList list = list_checkpoints(directory);
  if (!list.incomplete.empty()) std::cout << list.warning() << std::endl;
  CheckpointReader reader(checkpoint_path(directory, latest_step(list, directory)));
  const Settings settings = resume_with(settings_of(reader), r.choices);
  validate(settings);
  return {directory, std::move(reader), settings, {}};
}

// The order of samples is that of the same data.
void check_same_data(const CheckpointReader& reader, const RunData& data) {
  const int64_t stored = reader.meta().value("tokens", int64_t(-1));
  check(stored == data.training->tokens(), "the data has changed: ", reader.path(),
        " was trained on ", stored, " tokens, now there are ", data.training->tokens());
}

void load(RunState& state, const CheckpointReader& reader) {
  try {
    state.load(reader);
  } catch (const Error& error) {
    fail("", error.what(), "; to go on from an earlier checkpoint, move ", reader.path(), " away");
  }
}

std::string resume_hint(const std::string& directory) {
  return "gradus train --resume --out " + directory;
}

// A text begins with a new line, other tokens with the first one that is held out.
std::vector<int32_t> sample_prompt(const Settings& settings, const RunData& data) {
  if (settings.text.empty()) return {data.validation->batch(0, 1).inputs[0]};
  return data.tokenizer->encode("\n");
}

void print_sample(const Settings& settings, const RunData& data, LanguageModel& model,
                  int64_t tokens, const Interrupt& interrupt) {
  if (is_bert(settings) || tokens == 0 || interrupt.requested()) return;
  const Sampling sampling{.temperature = 0.8, .top_p = 0.95};
  std::cout << "\nsample (temperature 0.8, top-p 0.95):" << std::endl;
  TextGenerator generator(model, sample_prompt(settings, data), sampling, uint64_t(settings.seed));
  for (int64_t i = 0; i < tokens && !interrupt.requested(); ++i)
    std::cout << printable(data.tokenizer->decode(generator.next())) << std::flush;
  std::cout << "\n" << std::endl;
}

void print_outcome(const Outcome& outcome, const Settings& settings, const RunState& state,
                   const std::string& directory) {
  if (outcome.finished)
    std::cout << "validation loss " << outcome.validation->mean() << ", checkpoint "
              << outcome.checkpoint << std::endl;
  else
    std::cout << "stopped at step " << state.step << " of " << settings.steps << ", checkpoint "
              << outcome.checkpoint << "; to go on: " << resume_hint(directory) << std::endl;
}

// Measures some steps; where they lead is forgotten.
void profile(RunState& state, const RunData& data, const Settings& settings,
             const std::string& file) {
  StepRunner steps(state, *data.training, settings);
  const auto step = [&] {
    if (steps.running() == kMostRunning) steps.finish();
    steps.begin();
  };
  const StepSize size{model_size(settings), settings.batch,
                      nn::count_parameters(state.model.module()).elements, state.model.dtype};
  std::cout << table_of(profile_steps(state.model.device, step, 3, size, file)) << "\n\n"
            << file << ": each op of these steps, for ui.perfetto.dev" << std::endl;
}

void train(const TrainRequest& r) {
  check_request(r);
  const Device device = choose_device(r.device);
  Start start = r.resume ? resumed_start(r) : fresh_start(r, device.is_cuda());
  Settings& settings = start.settings;
  const RunData data = open_data(settings, start.directory);
  if (start.from) check_same_data(*start.from, data);
  if (!start.from) start.directory = new_run(r.out, name_of_data(data_path(settings)));
  check_dtype(device, dtype_of(settings));

  use_threads(r.threads);
  std::optional<GemmTuning> tuning;
  if (!r.gemm_tuning.empty()) tuning.emplace(r.gemm_tuning);
  RunState state(settings, device, start.weights ? &*start.weights : nullptr);
  if (start.from) load(state, *start.from);
  std::cout << opening(settings, data, device, nn::count_parameters(state.model.module()).elements,
                       state.step, start.directory)
            << "\n"
            << std::endl;

  if (!r.profile.empty()) return profile(state, data, settings, r.profile);

  Disk{}.make_directory(start.directory);
  if (!start.from) data.tokenizer->save(start.directory);
  const Interrupt interrupt;
  Outcome outcome;
  {
    ProgressDisplay display(std::cout, [] { return terminal_width(STDOUT_FILENO); });
    Trainer trainer(settings, *data.training, *data.validation, state, display,
                    {.directory = start.directory,
                     .stop_at = r.stop_at,
                     .stop = [&] { return interrupt.requested(); },
                     .cuda_graph = r.cuda_graph});
    outcome = trainer.run();
  }
  if (outcome.finished) print_sample(settings, data, state.model, r.sample, interrupt);
  print_outcome(outcome, settings, state, start.directory);
}

}  // namespace

int train_command(int argc, const char* const* argv) {
  TrainRequest request;
  CLI::App app("Trains a GPT or a BERT.", "gradus train");
  add_options(app, request);
  return run_command(app, argc, argv, [&] { train(request); });
}

}  // namespace gradus::train
