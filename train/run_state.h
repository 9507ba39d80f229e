#pragma once
// All that changes while a model is trained: what a checkpoint holds, and what a resumed run begins
// with, so that it goes on bit for bit.
//
// On many ranks each has a state: of its part of the model, with the same numbers. save() and load() are
// called by all of them.
//
//   tensors    parameters; for each the optimizer's moments, and its master where it has 16 bits
//   numbers    steps, samples consumed (the position in the data), updates applied (the position in
//              the schedule), the state of the generator that dropout draws from, the loss scale
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "parallel/finalize.h"
#include "sched/param_scheduler.h"
#include "train/language_model.h"
#include "train/ranks.h"
#include "train/settings.h"
#include "train/state.h"

namespace gradus::train {

struct RunState {
  Ranks ranks;
  LanguageModel model;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::MixedPrecision precision;  // how it is run
  parallel::Finalizer finalizer;    // and on all ranks
  sched::ParamScheduler schedule;   // counts the samples of applied updates
  Generator dropout;
  int64_t step = 0;         // steps taken, skipped ones included
  int64_t samples = 0;      // windows consumed
  int64_t updates = 0;      // applied by the steps that are finished (train/step.h)
  int64_t saved_step = -1;  // of the newest checkpoint, saved or loaded; −1: none

  /// New, with weights drawn at random or taken from a checkpoint of a model of these sizes.
  RunState(const Settings& settings, Device device, const CheckpointReader* weights = nullptr,
           const Ranks& ranks = {});

  /// Saves everything as `directory`/step_…; returns that path. `more` is added to the checkpoint's
  /// meta data, `score` is what the best checkpoint is chosen by. What fails on one rank is an Error of
  /// all, and leaves the earlier checkpoints.
  std::string save(const std::string& directory, const Settings& settings,
                   const nlohmann::json& more, std::optional<double> score, const Disk& disk = {});

  /// Takes everything from a checkpoint. After an Error nothing has changed.
  void load(const CheckpointReader& reader);
};

/// The learning rate over a run's samples. That of the first update is one step up the ramp: from 0 it
/// would move nothing.
sched::LearningRate learning_rate(const Settings& settings);

/// The settings that a checkpoint was written with. Error when it is not one of `gradus train`.
Settings settings_of(const CheckpointReader& reader);

}  // namespace gradus::train
