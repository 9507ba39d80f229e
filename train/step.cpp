#include "train/step.h"

#include <algorithm>
#include <limits>

#include "train/loss.h"

namespace gradus::train {
namespace {

// Adds the gradient of L; returns L.
double forward_and_backward(RunState& state, const Batch& batch, int64_t micro_batches) {
  const double share = 1.0 / double(std::max<int64_t>(batch.target_count(), 1));
  const int64_t rows = batch.rows / micro_batches;
  Tensor total;
  for (int64_t m = 0; m < micro_batches; ++m) {
    const Tensor loss = loss_sum(state.model, batch, m * rows, rows, &state.dropout) * share;
    loss.backward();
    total = total ? total + loss.detach() : loss.detach();
  }
  return total.item();
}

}  // namespace

StepReport train_step(RunState& state, const TrainingData& data, const Settings& settings) {
  const Batch batch = data.batch(state.samples, settings.batch);
  state.optimizer.zero_grad();
  StepReport report;
  report.loss = forward_and_backward(state, batch, settings.accumulate);
  const sched::Rates rates = state.schedule.now();
  const double max_norm =
      settings.clip > 0 ? settings.clip : std::numeric_limits<double>::infinity();
  const optim::StepResult result = state.optimizer.step(rates.lr, {.max_norm = max_norm});
  if (result.applied) state.schedule.advance(settings.batch);
  state.samples += settings.batch;
  ++state.step;

  report.lr = rates.lr;
  report.grad_norm = result.grad_norm;
  report.applied = result.applied;
  report.non_finite = result.non_finite;
  return report;
}

}  // namespace gradus::train
