#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "parallel/wait_limit.h"
#include "train/machine.h"
#include "train/run_directory.h"
#include "train/units.h"

namespace gradus::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// Beside the loss of a BERT.
void add_accuracies(std::vector<Metric>& line, const Scores& scores) {
  if (scores.pairs.count == 0) return;
  line.push_back({"accuracy", scores.accuracy()});
  line.push_back({"next_loss", scores.pairs.mean()});
  line.push_back({"next_accuracy", scores.pair_accuracy()});
}

}  // namespace

Trainer::Trainer(const Settings& settings, const TrainingData& training,
                 const ValidationData& validation, RunState& state, ProgressDisplay& display,
                 TrainerOptions options)
    : settings_(settings),
      training_(training),
      validation_(validation),
      state_(state),
      display_(display),
      options_(std::move(options)),
      steps_(state, training, settings, options_.cuda_graph),
      pace_(now()),
      finished_at_(now()) {
  if (options_.stop)
    options_.stop = [&state, mine = std::move(options_.stop)] {
      return any_of(state.ranks.world, mine());
    };
  together(state.ranks.world, [&] {
    if (state.ranks.is_first())
      metrics_.emplace(options_.directory + "/" + kMetricsFile, state.saved_step);
  });
}

Outcome Trainer::run() {
  const int ahead = state_.model.device.is_cuda() ? 1 : 0;  // the CPU does a step where it is begun
  while (state_.step < settings_.steps && begin_step()) finish_steps(must_pause() ? 0 : ahead);
  finish_steps(0);
  Outcome outcome;
  outcome.finished = state_.step >= settings_.steps;
  if (outcome.finished && !(evaluation_ && evaluation_->all)) evaluate(Extent::all);
  if (outcome.finished && evaluation_) outcome.validation = evaluation_->all;
  outcome.finished = outcome.validation.has_value();
  if (state_.saved_step != state_.step) save();
  together(state_.ranks.world, [&] {
    if (metrics_) metrics_->flush();
  });
  outcome.checkpoint = checkpoint_path(options_.directory, state_.saved_step);
  return outcome;
}

// False when asked to stop. A rank that is missed here has died or hangs, and need not be waited for as long as
// one that saves. But the first step prepares what the others use, and may take long.
bool Trainer::begin_step() {
  const parallel::WaitLimit limit(slowest_ ? std::max(options_.patience, 3 * *slowest_) : 0);
  if (asked_to_stop()) return false;
  steps_.begin();
  return true;
}

bool Trainer::asked_to_stop() const {
  if (options_.stop_at > 0 && state_.step >= options_.stop_at) return true;
  return options_.stop && options_.stop();
}

// Whether the step that began last must be finished before the next one begins.
bool Trainer::must_pause() const {
  return state_.step >= settings_.steps || is_due(state_.step, settings_.eval_every) ||
         is_due(state_.step, settings_.save_every);
}

void Trainer::finish_steps(int left_running) {
  while (steps_.running() > left_running) after(steps_.finish());
}

void Trainer::after(const StepReport& report) {
  const double seconds = now() - finished_at_;
  pace_.step(seconds, settings_.batch * settings_.length, now());
  slowest_ = slowest_ ? std::max(*slowest_, seconds) : 0;
  evaluation_.reset();
  last_ = report;
  const bool last = report.step >= settings_.steps;
  if (last || is_due(report.step, settings_.eval_every))
    evaluate(last ? Extent::all : Extent::part);
  record(report);
  show(report);
  if (!report.applied) report_skip(report);
  if (!last && is_due(report.step, settings_.save_every)) save_or_go_on();
  finished_at_ = now();
}

// The short evaluations are not broken off: a run that is resumed has the metrics of one that was not.
void Trainer::evaluate(Extent extent) {
  const auto may_stop = extent == Extent::all ? options_.stop : std::function<bool()>();
  evaluation_ = train::evaluate(state_.model, validation_,
                                {.batch = settings_.batch,
                                 .accumulate = settings_.accumulate * settings_.dp,
                                 .tokens = settings_.eval_tokens},
                                extent, may_stop, state_.ranks.dp);
  if (!evaluation_) return;
  const Scores& scores = evaluation_->all ? *evaluation_->all : evaluation_->part;
  display_.message("step " + std::to_string(state_.step) + ": " +
                   scores_text(scores, validation_.unigram_entropy()));
}

std::optional<Utilisation> Trainer::utilisation() const {
  const auto peak = machine_peak(state_.model.device, state_.model.dtype);
  if (!peak) return std::nullopt;
  const auto fraction = [&](AttentionCount count) {
    return flops_per_token(model_size(settings_), count) * pace_.tokens_per_second() /
           (*peak * state_.ranks.world.size());
  };
  return Utilisation{fraction(AttentionCount::causal), fraction(AttentionCount::full), *peak};
}

void Trainer::record(const StepReport& r) {
  if (!metrics_) return;
  std::vector<Metric> line = {{"loss", r.loss},
                              {"lr", r.lr},
                              {"grad_norm", r.grad_norm},
                              {"tokens", r.samples * settings_.length}};
  if (state_.precision.is_scaled()) line.push_back({"loss_scale", r.loss_scale});
  if (!r.applied) line.push_back({"skipped", r.non_finite});
  if (evaluation_) line.push_back({"validation_loss", evaluation_->part.mean()});
  if (evaluation_ && evaluation_->all)
    line.push_back({"validation_loss_all", evaluation_->all->mean()});
  if (evaluation_) add_accuracies(line, evaluation_->part);
  line.push_back({"tokens_per_second", pace_.tokens_per_second()});
  if (const auto mfu = utilisation()) {
    line.push_back({"mfu", mfu->causal});
    line.push_back({"mfu_full", mfu->full});
  }
  line.push_back({"memory", memory_in_use(state_.model.device)});
  try {
    metrics_->write(r.step, line);
    metrics_fail_ = false;
  } catch (const Error& error) {
    if (!metrics_fail_)
      display_.message(std::string("metrics wait in memory until they can be written: ") +
                       error.what());
    metrics_fail_ = true;
  }
}

void Trainer::show(const StepReport& r) {
  display_.show({.step = r.step,
                 .total = settings_.steps,
                 .loss = r.loss,
                 .lr = r.lr,
                 .grad_norm = r.grad_norm,
                 .tokens_per_second = pace_.tokens_per_second(),
                 .mfu = utilisation(),
                 .memory = memory_in_use(state_.model.device),
                 .seconds_left = pace_.seconds_left(settings_.steps - r.step),
                 .loss_scale = r.loss_scale},
                now());
}

void Trainer::report_skip(const StepReport& r) {
  check(settings_.non_finite == "skip", "step ", r.step, ": ", r.why_skipped,
        "; with --non-finite skip such a step changes nothing and training goes on");
  check(!r.is_hopeless, "step ", r.step, ": ", r.why_skipped);
  display_.message("step " + std::to_string(r.step) + " is skipped: " + r.why_skipped +
                   "; parameters, moments and schedule are as before");
}

void Trainer::save() {
  nlohmann::json more = last_step_of(last_);
  more["tokens"] = training_.tokens();
  std::optional<double> score;
  if (evaluation_) score = evaluation_->part.mean();
  if (evaluation_ && evaluation_->all) more["validation_loss_all"] = evaluation_->all->mean();
  try {
    const std::string path = state_.save(options_.directory, settings_, more, score, options_.disk);
    together(state_.ranks.world, [&] {
      if (state_.ranks.is_first())
        prune_checkpoints(options_.directory, int(settings_.keep), options_.disk);
    });
    display_.message("step " + std::to_string(state_.step) + ": saved " + path);
  } catch (const Error& error) {
    fail("step ", state_.step,
         state_.saved_step == state_.step ? " is saved, but: " : " is not saved: ", error.what(),
         state_.saved_step < 0 ? "; there is no earlier checkpoint" : "; the newest is ",
         state_.saved_step < 0 ? "" : checkpoint_path(options_.directory, state_.saved_step));
  }
}

void Trainer::save_or_go_on() {
  try {
    save();
  } catch (const Error& error) {
    display_.message(std::string(error.what()) + "; training goes on");
  }
}

}  // namespace gradus::train
