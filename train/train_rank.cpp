#include "train/train_rank.h"

#include <unistd.h>

#include <iostream>

#include "core/cuda.h"
#include "nn/summary.h"
#include "train/generate.h"
#include "train/machine.h"
#include "train/opening.h"
#include "train/profile.h"
#include "train/trainer.h"

namespace gradus::train {
namespace {

void load(RunState& state, const CheckpointReader& reader) {
  try {
    state.load(reader);
  } catch (const Error& error) {
    fail("", error.what(), "; to go on from an earlier checkpoint, move ", reader.path(), " away");
  }
}

// A text begins with a new line, other tokens with the first one that is held out.
std::vector<int32_t> sample_prompt(const Settings& settings, const RunData& data) {
  if (settings.text.empty()) return {data.validation->batch(0, 1).inputs[0]};
  return data.tokenizer->encode("\n");
}

// A model that is cut over ranks is put together again for it, from the checkpoint.
LanguageModel whole_model(const Settings& settings, Device device, const std::string& checkpoint) {
  LanguageModel model(settings, device);
  model.place();
  load_state(CheckpointReader(checkpoint), parameters_of(model.module()), Unexpected::ignore);
  return model;
}

// The first rank alone.
void print_sample(const TrainingRun& run, RunState& state, const std::string& checkpoint) {
  const Settings& settings = run.start.settings;
  const bool is_wanted = run.request.sample > 0 && !run.interrupt.requested();
  if (is_bert(settings) || !is_wanted || !state.ranks.is_first()) return;
  std::optional<LanguageModel> whole;
  if (state.ranks.tp.size() > 1) whole = whole_model(settings, state.model.device, checkpoint);
  const Sampling sampling{.temperature = 0.8, .top_p = 0.95};
  std::cout << "\nsample (temperature 0.8, top-p 0.95):" << std::endl;
  TextGenerator generator(whole ? *whole : state.model, sample_prompt(settings, run.data), sampling,
                          uint64_t(settings.seed));
  for (int64_t i = 0; i < run.request.sample && !run.interrupt.requested(); ++i)
    std::cout << printable(run.data.tokenizer->decode(generator.next())) << std::flush;
  std::cout << "\n" << std::endl;
}

void print_outcome(std::ostream& out, const Outcome& outcome, const RunState& state,
                   const Start& start) {
  if (outcome.finished)
    out << "validation loss " << outcome.validation->mean() << ", checkpoint " << outcome.checkpoint
        << std::endl;
  else
    out << "stopped at step " << state.step << " of " << start.settings.steps << ", checkpoint "
        << outcome.checkpoint << "; to go on: gradus train --resume --out " << start.directory
        << std::endl;
}

// Measures some steps; where they lead is forgotten.
void profile(RunState& state, const TrainingRun& run) {
  const Settings& settings = run.start.settings;
  StepRunner steps(state, *run.data.training, settings);
  const auto step = [&] {
    if (steps.running() == kMostRunning) steps.finish();
    steps.begin();
  };
  const StepSize size{model_size(settings), settings.batch,
                      nn::count_parameters(state.model.module()).elements, state.model.dtype};
  const std::string& file = run.request.profile;
  std::cout << table_of(profile_steps(state.model.device, step, 3, size, file)) << "\n\n"
            << file << ": each op of these steps, for ui.perfetto.dev" << std::endl;
}

std::string opening_of(const TrainingRun& run, RunState& state) {
  const std::string ranks = ranks_text(state, run.start.settings);  // all take part
  int64_t elements = 0;                                             // of the whole model
  for (const nn::Parameter& p : state.model.module().parameters())
    elements += p.global_shape().numel();
  return opening(run.start.settings, run.data, state.model.device, elements, state.step,
                 run.start.directory) +
         ranks;
}

}  // namespace

Device device_of(const std::string& name, const parallel::Communicator& world) {
  const Device device = choose_device(name);
  const bool is_shared_out = device.is_cuda() && (name == "auto" || name == "cuda");
  if (!is_shared_out) return device;
  return {DeviceType::cuda, int8_t(world.rank() % cuda_device_count())};
}

void train_rank(const parallel::Communicator& world, const TrainingRun& run) {
  const TrainRequest& request = run.request;
  const Start& start = run.start;
  const Settings& settings = start.settings;
  std::ostream nowhere(nullptr);
  std::ostream& out = world.rank() == 0 ? std::cout : nowhere;

  const Ranks ranks(world, settings);
  RunState state(settings, device_of(request.device, world),
                 start.weights ? &*start.weights : nullptr, ranks);
  if (start.from) load(state, *start.from);
  check_same_parameters(state.optimizer->flat(), ranks.groups());
  out << opening_of(run, state) << "\n" << std::endl;
  if (!request.profile.empty()) return profile(state, run);

  together(world, [&] {
    if (!ranks.is_first()) return;
    Disk{}.make_directory(start.directory);
    if (!start.from) run.data.tokenizer->save(start.directory);
  });
  Outcome outcome;
  {
    const bool shows = ranks.is_first();
    ProgressDisplay display(out, [&] { return shows ? terminal_width(STDOUT_FILENO) : 0; });
    Trainer trainer(settings, *run.data.training, *run.data.validation, state, display,
                    {.directory = start.directory,
                     .stop_at = request.stop_at,
                     .stop = [&] { return run.interrupt.requested(); },
                     .cuda_graph = request.cuda_graph,
                     .patience = request.patience});
    outcome = trainer.run();
  }
  if (outcome.finished) print_sample(run, state, outcome.checkpoint);
  print_outcome(out, outcome, state, start);
}

}  // namespace gradus::train
