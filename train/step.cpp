#include "train/step.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/scope.h"
#include "train/loss.h"
#include "train/masked_loss.h"

namespace gradus::train {
namespace {

optim::StepOptions options_of(const Settings& settings) {
  optim::StepOptions options;
  if (settings.clip > 0) options.max_norm = settings.clip;
  return options;
}

// The rates of an update that follows `updates` others, some of which may not be finished.
optim::Rates rates_at(const RunState& state, int64_t updates, int64_t batch) {
  const int64_t ahead = (updates - state.updates) * batch;
  const sched::Rates rates = state.schedule.at(state.schedule.samples() + ahead);
  return {rates.lr, rates.weight_decay};
}

// Losses are summed in f32, those of a model in f64 in f64.
DType loss_type(const RunState& state) {
  return state.model.dtype == DType::f64 ? DType::f64 : DType::f32;
}

double number_in(const void* host, DType dtype) {
  if (dtype == DType::f64) return *static_cast<const double*>(host);
  return *static_cast<const float*>(host);
}

}  // namespace

StepRunner::StepRunner(RunState& state, const TrainingData& data, const Settings& settings,
                       bool graph)
    : state_(state),
      data_(data),
      settings_(settings),
      samples_(settings, state.ranks.dp.rank()),
      batch_(state.model.device, samples_.local(), settings.length) {
  for (int i = 0; i < kMostRunning; ++i)
    losses_.emplace_back(state.model.device, size_of(loss_type(state)));
  if (!graph) return;
  check(settings.dropout == 0, "--cuda-graph does without dropout, but --dropout is ",
        settings.dropout, ": a graph would drop the same elements in every step");
  check(state.model.gpt != nullptr,
        "--cuda-graph is for a GPT: the number of words that are masked "
        "for a BERT differs from step to step");
  check(state.ranks.world.size() == 1, "--cuda-graph is for one rank, not for ",
        state.ranks.world.size(), ": leave it out");
  check(state.model.device.is_cuda(), "--cuda-graph needs a GPU, the run is on ",
        state.model.device);
  graph_.emplace(state.model.device);
}

StepRunner::Counts StepRunner::count(const Batch& local) const {
  const Counts mine{local.target_count(), local.pair_count()};
  if (samples_.data_ranks == 1) return mine;
  const auto all = state_.ranks.dp.all_gather_values({mine.targets, mine.pairs});
  Counts sum;
  for (size_t i = 0; i < all.size(); i += 2) sum.targets += all[i], sum.pairs += all[i + 1];
  return sum;
}

// The part of L that a micro-batch of this rank has.
Tensor StepRunner::loss_of_part(const Batch& batch, int64_t part, const Counts& counts,
                                Generator* dropout) {
  const int64_t rows = samples_.rows, first = part * rows;
  const double share = 1.0 / double(std::max<int64_t>(counts.targets, 1));
  const Randomness random(dropout, samples_.first(part));
  if (state_.model.gpt)
    return loss_sum(state_.model, batch_.inputs(first, rows), batch_.targets(first, rows), random,
                    share);
  const double pair_weight = double(counts.targets) / double(std::max<int64_t>(counts.pairs, 1));
  return masked_loss_sum(state_.model, batch, first, rows, random, pair_weight) * share;
}

// All of a step that the device does, the same kernels each time (of a GPT).
void StepRunner::compute(const Batch& batch, const Counts& counts) {
  state_.optimizer->zero_grad();
  const Generator::State masks = state_.dropout.state();
  Tensor total;
  for (int64_t m = 0; m < samples_.micro_batches; ++m) {
    state_.dropout.restore(masks);
    const Tensor loss = loss_of_part(batch, m, counts, &state_.dropout);
    if (m + 1 == samples_.micro_batches) state_.finalizer.expect_last_backward();
    loss.backward(state_.precision.seed());
    total = total ? total + loss.detach() : loss.detach();
  }
  Scope scope("optimizer");
  state_.finalizer.run(state_.precision, options_of(settings_));
  loss_ = state_.ranks.dp.all_reduce(total);
}

void StepRunner::begin() {
  check(running() < kMostRunning, "a step began while ", kMostRunning, " others are not finished");
  const Batch batch = local_batch(data_, state_.samples, samples_);
  const Counts counts = count(batch);
  check(!graph_ || counts.targets == settings_.batch * settings_.length,
        "a batch for a CUDA graph has targets that are ignored");
  if (state_.model.gpt) batch_.load(batch);
  const auto rates = [&](int64_t updates) { return rates_at(state_, updates, settings_.batch); };
  const optim::StepResult result = state_.precision.request(rates, options_of(settings_));
  const auto work = [&] { compute(batch, counts); };
  graph_ ? graph_->run_or_replay(work) : work();
  state_.samples += settings_.batch;
  ++state_.step;
  loss_of(state_.step).copy_from(loss_.raw());
  running_.push_back({result, state_.step, state_.samples, counts.targets});
}

StepReport StepRunner::finish() {
  check(running() > 0, "no step is running that could be finished");
  const Running step = std::move(running_.front());
  running_.pop_front();
  // The copy of the loss is behind the step: waiting for it, not for the device, lets the next one run.
  const double loss = number_in(loss_of(step.step).wait(), loss_type(state_));
  const optim::StepResult& result = step.result;
  if (result.applied()) state_.schedule.advance(settings_.batch);
  state_.updates = result.updates();
  return {.step = step.step,
          .samples = step.samples,
          .targets = step.targets,
          .loss = loss,
          .lr = result.lr(),
          .grad_norm = result.grad_norm(),
          .applied = result.applied(),
          .loss_scale = result.loss_scale(),
          .non_finite = result.non_finite(),
          .why_skipped = result.why_skipped(),
          .is_hopeless = result.is_hopeless()};
}

nlohmann::json last_step_of(const StepReport& r) {
  return {{"last_step", {{"loss", r.loss}, {"grad_norm", r.grad_norm}, {"targets", r.targets}}}};
}

StepReport train_step(RunState& state, const TrainingData& data, const Settings& settings) {
  StepRunner runner(state, data, settings);
  runner.begin();
  return runner.finish();
}

}  // namespace gradus::train
