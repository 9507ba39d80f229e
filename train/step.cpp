#include "train/step.h"

#include <algorithm>

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
      batch_(state.model.device, settings.batch, settings.length) {
  for (int i = 0; i < kMostRunning; ++i)
    losses_.emplace_back(state.model.device, size_of(loss_type(state)));
  if (!graph) return;
  check(settings.dropout == 0, "--cuda-graph does without dropout, but --dropout is ",
        settings.dropout, ": a graph would drop the same elements in every step");
  check(state.model.gpt != nullptr,
        "--cuda-graph is for a GPT: the number of words that are masked "
        "for a BERT differs from step to step");
  check(state.model.device.is_cuda(), "--cuda-graph needs a GPU, the run is on ",
        state.model.device);
  graph_.emplace(state.model.device);
}

// The part of L that a micro-batch has.
Tensor StepRunner::loss_of_part(const Batch& batch, int64_t part, double share) {
  const int64_t rows = settings_.batch / settings_.accumulate, first = part * rows;
  const Randomness dropout(&state_.dropout, first);
  if (state_.model.bert) return masked_loss_sum(state_.model, batch, first, rows, dropout) * share;
  return loss_sum(state_.model, batch_.inputs(first, rows), batch_.targets(first, rows), dropout,
                  share);
}

// All of a step that the device does, the same kernels each time (of a GPT).
void StepRunner::compute(const Batch& batch) {
  const double share = 1.0 / double(std::max<int64_t>(batch.target_count(), 1));
  state_.optimizer->zero_grad();
  const Generator::State masks = state_.dropout.state();
  Tensor total;
  for (int64_t m = 0; m < settings_.accumulate; ++m) {
    state_.dropout.restore(masks);  // those of the whole batch, of which each part draws its own
    const Tensor loss = loss_of_part(batch, m, share);
    loss.backward(state_.precision.seed());
    total = total ? total + loss.detach() : loss.detach();
  }
  loss_ = total;
  Scope scope("optimizer");
  state_.precision.run(options_of(settings_));
}

void StepRunner::begin() {
  check(running() < kMostRunning, "a step began while ", kMostRunning, " others are not finished");
  const Batch batch = data_.batch(state_.samples, settings_.batch);
  check(!graph_ || batch.target_count() == settings_.batch * settings_.length,
        "a batch for a CUDA graph has targets that are ignored");
  if (state_.model.gpt) batch_.load(batch);
  const auto rates = [&](int64_t updates) { return rates_at(state_, updates, settings_.batch); };
  const optim::StepResult result = state_.precision.request(rates, options_of(settings_));
  const auto work = [&] { compute(batch); };
  graph_ ? graph_->run_or_replay(work) : work();
  state_.samples += settings_.batch;
  ++state_.step;
  loss_of(state_.step).copy_from(loss_.raw());
  running_.push_back({result, state_.step, state_.samples, batch.target_count()});
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

StepReport train_step(RunState& state, const TrainingData& data, const Settings& settings) {
  StepRunner runner(state, data, settings);
  runner.begin();
  return runner.finish();
}

}  // namespace gradus::train
