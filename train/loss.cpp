#include "train/loss.h"

#include <algorithm>

#include "autograd/node.h"
#include "ops/ops.h"
#include "train/masked_loss.h"

namespace gradus::train {
namespace {

Scores batch_scores(LanguageModel& model, const Batch& batch, int64_t micro_batches) {
  const int64_t rows = batch.rows / micro_batches;
  Scores scores;
  for (int64_t m = 0; m < micro_batches; ++m)
    if (model.bert)
      scores += masked_scores(model, batch, m * rows, rows);
    else
      scores.sum += loss_sum(model, batch, m * rows, rows, nullptr).item();
  if (model.gpt) scores.count = batch.target_count();
  return scores;
}

// Of n batches, is batch i one of the k that are spread evenly, from the first on?
bool is_chosen(int64_t i, int64_t n, int64_t k) { return i * k % n < k; }

}  // namespace

Tensor loss_sum(const LanguageModel& model, const Tensor& inputs, const Tensor& targets,
                const Randomness& dropout, double scale) {
  return model.gpt->loss(
      inputs, targets, dropout,
      {.ignore_index = kIgnoreTarget, .reduction = Reduction::sum, .scale = scale});
}

Tensor loss_sum(LanguageModel& model, const Batch& batch, int64_t first, int64_t rows,
                const Randomness& dropout) {
  if (model.bert) return masked_loss_sum(model, batch, first, rows, dropout);
  const auto part = [&](const std::vector<int32_t>& ids) {
    const auto row = size_t(batch.length);
    return model.ids(std::span(ids).subspan(size_t(first) * row, size_t(rows) * row), rows);
  };
  return loss_sum(model, part(batch.inputs), part(batch.targets), dropout);
}

std::optional<Evaluation> evaluate(LanguageModel& model, const ValidationData& data,
                                   const EvaluationPlan& plan, Extent extent,
                                   const std::function<bool()>& stop) {
  const NoGrad no_grad;
  const nn::Evaluating evaluating(model.module());
  const int64_t n = data.batches(plan.batch), batch_tokens = plan.batch * data.length();
  const int64_t wanted = (plan.tokens + batch_tokens - 1) / batch_tokens;
  const int64_t part = plan.tokens > 0 ? std::min(n, wanted) : n;
  Evaluation result;
  Scores all;
  for (int64_t i = 0; i < n; ++i) {
    if (extent == Extent::part && !is_chosen(i, n, part)) continue;
    if (stop && stop()) return std::nullopt;
    const Scores scores = batch_scores(model, data.batch(i, plan.batch), plan.accumulate);
    all += scores;
    if (is_chosen(i, n, part)) result.part += scores;
  }
  if (extent == Extent::all) result.all = all;
  return result;
}

}  // namespace gradus::train
