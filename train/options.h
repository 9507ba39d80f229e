#pragma once
// `gradus train` as the command line asks for it.
#include <CLI/App.hpp>
#include <string>

#include "train/settings.h"

namespace gradus::train {

struct TrainRequest {
  Choices choices;
  RankChoices ranks;
  std::string out;              // directory of the run; empty: runs/NAME, or runs/NAME-2 …
  std::string init;             // checkpoint or run whose weights it begins with
  bool resume = false;          // go on from its newest checkpoint
  std::string device = "auto";  // auto: the GPU if there is one
  int threads = 0;              // 0: one for each core
  std::string gemm_tuning;      // file of a GemmTuning; empty: none
  int64_t stop_at = 0;          // save and stop after this step, as Ctrl-C would; 0: at the end
  int64_t sample = 400;         // tokens that the trained model writes at the end
  bool cuda_graph = false;      // record a step, and launch it as a whole
  double patience = 30;         // seconds that a step waits for a rank that does not come
  bool check_layouts = false;   // only compare a step of all layouts that fit
  std::string profile{};        // only measure steps: a chrome trace is written here; empty: no
};

/// Gives `app` an option for each setting and each member of `request`, and --config FILE.
void add_options(CLI::App& app, TrainRequest& request);

}  // namespace gradus::train
