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
      scores.sum += loss_sum(model, batch, m * rows, rows, {}).item();
  if (model.gpt) scores.count = batch.target_count();
  return scores;
}

// Each of them was counted by one data rank and is 0 elsewhere, so the sums over ranks are exact.
void share(std::vector<Scores>& scores, const parallel::Communicator& dp) {
  if (dp.size() == 1 || scores.empty()) return;
  const auto numbers = [](Scores& s, double* row, auto&& move) {
    move(s.sum, row[0]), move(s.count, row[1]), move(s.right, row[2]);
    move(s.pairs.sum, row[3]), move(s.pairs.count, row[4]), move(s.right_pairs, row[5]);
  };
  constexpr int64_t kNumbers = 6;
  const Tensor table = empty({int64_t(scores.size()), kNumbers}, DType::f64);
  for (size_t k = 0; k < scores.size(); ++k)
    numbers(scores[k], table.data<double>() + int64_t(k) * kNumbers,
            [](auto& mine, double& there) { there = double(mine); });
  dp.all_reduce_into(table);
  for (size_t k = 0; k < scores.size(); ++k)
    numbers(scores[k], table.data<double>() + int64_t(k) * kNumbers,
            [](auto& mine, double& there) { mine = std::decay_t<decltype(mine)>(there); });
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
  const auto part = [&](const std::vector<int32_t>& ids) {
    const auto row = size_t(batch.length);
    return model.ids(std::span(ids).subspan(size_t(first) * row, size_t(rows) * row), rows);
  };
  return loss_sum(model, part(batch.inputs), part(batch.targets), dropout);
}

std::optional<Evaluation> evaluate(LanguageModel& model, const ValidationData& data,
                                   const EvaluationPlan& plan, Extent extent,
                                   const std::function<bool()>& stop,
                                   const parallel::Communicator& dp) {
  const NoGrad no_grad;
  const nn::Evaluating evaluating(model.module());
  const int64_t n = data.batches(plan.batch), batch_tokens = plan.batch * data.length();
  const int64_t wanted = (plan.tokens + batch_tokens - 1) / batch_tokens;
  const int64_t part = plan.tokens > 0 ? std::min(n, wanted) : n;
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < n; ++i)
    if (extent == Extent::all || is_chosen(i, n, part)) chosen.push_back(i);

  std::vector<Scores> scores(chosen.size());
  for (size_t k = 0; k < chosen.size(); ++k) {
    if (int64_t(k) % dp.size() == 0 && stop && stop()) return std::nullopt;
    if (int64_t(k) % dp.size() == dp.rank())
      scores[k] = batch_scores(model, data.batch(chosen[k], plan.batch), plan.accumulate);
  }
  share(scores, dp);
  Evaluation result;
  Scores all;
  for (size_t k = 0; k < chosen.size(); ++k) {
    all += scores[k];
    if (is_chosen(chosen[k], n, part)) result.part += scores[k];
  }
  if (extent == Extent::all) result.all = all;
  return result;
}

}  // namespace gradus::train
