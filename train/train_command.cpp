// gradus train: in this order, so that a mistake costs nothing: options, data, the place for results
// (looked at, not made), the device; then, on each rank, the model in memory, and only then directories
// and steps.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "ops/gemm_tuning.h"
#include "parallel/mpi.h"
#include "train/commands.h"
#include "train/layouts.h"
#include "train/machine.h"
#include "train/opening.h"
#include "train/run_directory.h"
#include "train/run_state.h"
#include "train/train_rank.h"
#include "train/units.h"

namespace gradus::train {
namespace {

// The processes of this run, where ranks are processes: mpirun or srun has started several.
using Processes = std::optional<parallel::Communicator>;

bool prints(const Processes& processes) { return !processes || processes->rank() == 0; }

// Seconds that a rank waits for others outside of steps: they may be reading data or saving.
constexpr double kPatience = 600;

void check_request(const TrainRequest& r) {
  check(r.stop_at >= 0, "--stop-at must be positive, got ", r.stop_at);
  check(r.profile.empty() || !r.cuda_graph,
        "--profile measures ops one by one, which a CUDA graph does not launch: leave out one");
  check(r.init.empty() || !r.resume,
        "--resume goes on with the weights of the run: leave --init out");
  check(r.patience > 0, "--patience must be positive, got ", r.patience);
  check(r.sample >= 0, "--sample must not be negative, got ", r.sample);
}

std::string data_name(const Choices& c) {
  return name_of_data(c.text.value_or(c.data.value_or("")));
}

Start fresh_start(const TrainRequest& r, bool on_gpu) {
  Start start;
  if (!r.init.empty()) start.weights.emplace(find_checkpoint(r.init));
  start.settings = start.weights
                       ? resolve_with_model(settings_of(*start.weights), r.choices, on_gpu)
                       : resolve(r.choices, on_gpu);
  settle_ranks(start.settings, r.choices, r.ranks);
  validate(start.settings);
  return start;
}

Start resumed_start(const TrainRequest& r, const Processes& processes) {
  check(!r.out.empty() || r.choices.text || r.choices.data,
        "--resume needs to know which run: name its directory with --out");
  const std::string directory = existing_run(r.out, data_name(r.choices));
  const CheckpointList list = list_checkpoints(directory);
  if (!list.incomplete.empty() && prints(processes)) std::cout << list.warning() << std::endl;
  CheckpointReader reader(checkpoint_path(directory, latest_step(list, directory)));
  Settings settings = resume_with(settings_of(reader), r.choices);
  settle_ranks(settings, r.choices, r.ranks);
  validate(settings);
  return {directory, std::move(reader), settings, {}};
}

// The order of samples is that of the same data.
void check_same_data(const CheckpointReader& reader, const RunData& data) {
  const int64_t stored = reader.meta().value("tokens", int64_t(-1));
  check(stored == data.training->tokens(), "the data has changed: ", reader.path(),
        " was trained on ", stored, " tokens, now there are ", data.training->tokens());
}

// The first process looks for a place that is free.
std::string new_directory(const TrainRequest& r, const Settings& settings,
                          const Processes& processes) {
  const auto choose = [&] { return new_run(r.out, name_of_data(data_path(settings))); };
  if (!processes) return choose();
  std::string directory;
  together(*processes, [&] {
    if (prints(processes)) directory = choose();
  });
  return from_first(*processes, directory);
}

// Calls body(world) on each rank: a thread of this process, or this process.
using Body = std::function<void(const parallel::Communicator& world)>;
void on_ranks(const Processes& processes, int64_t ranks, const Body& body) {
  if (processes) return body(*processes);
  parallel::run_ranks(int(ranks), body, {.timeout = kPatience});
}

void train(TrainRequest r, const Processes& processes) {
  if (processes) {
    check(r.ranks.ranks.value_or(processes->size()) == processes->size(), "--ranks ",
          r.ranks.ranks.value_or(0), ", but ", processes->size(), " processes were started");
    r.ranks.ranks = processes->size();
  }
  const Device device = choose_device(r.device);
  Start start = r.resume ? resumed_start(r, processes) : fresh_start(r, device.is_cuda());
  Settings& settings = start.settings;
  const int64_t ranks = settings.tp * settings.dp;
  check(r.profile.empty() || ranks == 1, "--profile measures one rank, but there are ", ranks,
        ": profile with --tp 1 --dp 1");
  const RunData data = open_data(settings, start.directory);
  if (start.from) check_same_data(*start.from, data);
  if (!start.from) start.directory = new_directory(r, settings, processes);
  check_dtype(device, dtype_of(settings));

  use_threads(r.threads);
  std::optional<GemmTuning> tuning;
  if (!r.gemm_tuning.empty()) tuning.emplace(r.gemm_tuning);
  const Interrupt interrupt;
  const TrainingRun run{r, start, data, interrupt};
  on_ranks(processes, ranks, [&](const parallel::Communicator& w) { train_rank(w, run); });
}

// In f64 and on the CPU unless something else is asked for. Exit code 1 if a layout differs.
void check_all_layouts(TrainRequest r) {
  if (!r.choices.dtype) r.choices.dtype = "f64";
  const int64_t most = r.ranks.ranks.value_or(8);
  r.ranks = {};
  Settings settings = fresh_start(r, false).settings;
  const RunData data = open_data(settings);
  use_threads(r.threads);
  std::cout << model_text(settings) << "; " << settings.dtype << ", a step of "
            << count_text(settings.batch, "window") << "\n\n";
  const std::string device = r.device == "auto" ? "cpu" : r.device;
  check_dtype(choose_device(device), dtype_of(settings));
  std::vector<int64_t> micro_batches = {1, 2};
  if (r.choices.accumulate) micro_batches = {*r.choices.accumulate};
  const auto layouts = layouts_of(for_gradients(settings), most, micro_batches);
  check(check_layouts(layouts, *data.training, std::cout, device), "layouts differ");
}

void begin(const TrainRequest& r) {
  check_request(r);
  if (r.check_layouts) return check_all_layouts(r);
  if (!parallel::launched_by_mpi()) return train(r, {});
  parallel::ProcessOptions options;
  options.timeout = kPatience;
  parallel::run_processes([&](const parallel::Communicator& world) { train(r, world); }, options);
}

}  // namespace

int train_command(int argc, const char* const* argv) {
  TrainRequest request;
  CLI::App app("Trains a GPT or a BERT.", "gradus train");
  add_options(app, request);
  return run_command(app, argc, argv, [&] { begin(request); });
}

}  // namespace gradus::train
