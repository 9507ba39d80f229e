#include "train/step.h"

#include <algorithm>

#include "train/loss.h"

namespace gradus::train {
namespace {

// Adds the gradient of L; returns L.
Tensor forward_and_backward(RunState& state, const Batch& batch, int64_t micro_batches) {
  const double share = 1.0 / double(std::max<int64_t>(batch.target_count(), 1));
  const int64_t rows = batch.rows / micro_batches;
  Tensor total;
  for (int64_t m = 0; m < micro_batches; ++m) {
    const Tensor loss = loss_sum(state.model, batch, m * rows, rows, &state.dropout) * share;
    loss.backward();
    total = total ? total + loss.detach() : loss.detach();
  }
  return total;
}

optim::StepResult update(RunState& state, const Settings& settings) {
  const auto rates = [&](int64_t updates) {
    const int64_t ahead = (updates - state.updates) * settings.batch;  // steps not yet finished
    const sched::Rates now = state.schedule.at(state.schedule.samples() + ahead);
    return optim::Rates{now.lr, now.weight_decay};
  };
  optim::StepOptions options;
  if (settings.clip > 0) options.max_norm = settings.clip;
  const optim::StepResult result = state.optimizer.request(rates, options);
  state.optimizer.run(options);
  return result;
}

}  // namespace

RunningStep begin_step(RunState& state, const TrainingData& data, const Settings& settings) {
  const Batch batch = data.batch(state.samples, settings.batch);
  state.optimizer.zero_grad();
  RunningStep step;
  step.loss = forward_and_backward(state, batch, settings.accumulate);
  step.result = update(state, settings);
  state.samples += settings.batch;
  ++state.step;
  return step;
}

StepReport finish_step(RunState& state, const RunningStep& step, const Settings& settings) {
  const optim::StepResult& result = step.result;
  if (result.applied()) state.schedule.advance(settings.batch);
  state.updates = result.updates();
  return {.loss = step.loss.item(),
          .lr = result.lr(),
          .grad_norm = result.grad_norm(),
          .applied = result.applied(),
          .non_finite = result.non_finite()};
}

StepReport train_step(RunState& state, const TrainingData& data, const Settings& settings) {
  return finish_step(state, begin_step(state, data, settings), settings);
}

}  // namespace gradus::train
