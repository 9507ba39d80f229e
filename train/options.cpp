#include "train/options.h"

#include <CLI/CLI.hpp>

#include "train/machine.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

template <class T>
void add_choice(CLI::App& app, const Setting& s, std::optional<T>& choice) {
  const std::string also = s.also ? std::string(",--") + s.also : "";
  app.add_option(std::string("--") + s.name + also, choice, s.help)->group(s.group);
}
void add_choice(CLI::App& app, const Setting& s, std::optional<bool>& choice) {
  const auto set = [&choice](int64_t count) { choice = count > 0; };  // --name=false: −1
  app.add_flag_function(std::string("--") + s.name, set, s.help)->group(s.group);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

void add_options(CLI::App& app, TrainRequest& r) {
  constexpr auto kRun = "Run";
  app.get_formatter()->column_width(28);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Choices::each_field([&](const Setting& s, auto& choice) { add_choice(app, s, choice); },
                      r.choices);
  app.add_option("--ranks", r.ranks.ranks,
                 "train with so many ranks, threads of this process: tp × dp (default: 1; under "
                 "mpirun or srun: its processes)")
      ->group("Ranks");
  app.add_option("--micro-batch", r.ranks.micro_batch,
                 "windows that a data rank computes at a time; in other words, --accumulate "
                 "batch / (micro-batch × dp)")
      ->group("Training");
  app.add_option("--out", r.out,
                 "directory of the run's checkpoints and metrics (default: runs/NAME OF THE DATA, "
                 "with a number where that is taken)")
      ->group(kRun);
  app.add_option("--init", r.init,
                 "begin with the model and the weights of this checkpoint or run, not at random")
      ->group(kRun);
  app.add_flag(
         "--resume", r.resume,
         "go on from the newest checkpoint in --out, with its settings; the result is that of "
         "an uninterrupted run, bit for bit")
      ->group(kRun);
  app.add_option("--device", r.device, kDeviceHelp)->group(kRun);
  app.add_option("--threads", r.threads, "CPU threads (default: one for each core)")->group(kRun);
  app.add_option(
         "--gemm-tuning", r.gemm_tuning,
         "file in which the fastest algorithm of each matrix product on a GPU is kept, timed "
         "at its first use; runs that read one file give equal bits (default: no timing)")
      ->group(kRun);
  app.add_option("--stop-at", r.stop_at, "save and stop after this step, as Ctrl-C would")
      ->group(kRun);
  app.add_option("--sample", r.sample, "tokens of the sample at the end (default: 400)")
      ->group(kRun);
  app.add_flag("--cuda-graph", r.cuda_graph,
               "on a GPU: record a step and launch it as a whole, which saves host time; the "
               "numbers are the same. Not with dropout")
      ->group(kRun);
  app.add_option("--patience", r.patience,
                 "seconds that a step waits for a rank that does not come, before that ends the "
                 "run; if they take longer, as long as three steps (default: 30)")
      ->group("Ranks");
  app.add_flag("--check-layouts", r.check_layouts,
               "take one step in every layout of up to --ranks ranks (default: 8), threads on the "
               "CPU in f64, in 1 and 2 micro-batches or in --accumulate, compare gradients, loss "
               "and norm with those of one rank, and save nothing")
      ->group("Ranks");
  app.add_option("--profile", r.profile,
                 "take a few steps, print the time by class of kernel beside the least it could "
                 "be, write all ops to this file (for ui.perfetto.dev), and save nothing else")
      ->group(kRun);
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.set_config("--config", "", "read options from a file, one \"name = value\" a line");
  app.footer("Models: " + joined(preset_names()) + ". Without --model: " + default_preset(false) +
             " on a CPU, " + default_preset(true) +
             " on a GPU.\n"
             "Ctrl-C saves and stops; a second Ctrl-C stops at once. Exit code: 0 when the run is "
             "saved, finished or not; 1 after an error; 2 for wrong options.");
}

}  // namespace gradus::train
