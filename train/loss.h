#pragma once
// The loss of a language model on batches of windows.
#include <functional>
#include <optional>

#include "train/dataset.h"
#include "train/run_state.h"
#include "train/scores.h"

namespace gradus::train {

/// Of a GPT: `scale` times Σ ℓ over the targets (rows, length), ids on the model's device: a recorded scalar, in
/// f32. `dropout` may be null where the model is in evaluation mode or drops nothing.
Tensor loss_sum(const LanguageModel& model, const Tensor& inputs, const Tensor& targets,
                const Randomness& dropout, double scale = 1);

/// Σ ℓ over `rows` rows of a batch on the host, from row `first` on. Of a GPT.
Tensor loss_sum(LanguageModel& model, const Batch& batch, int64_t first, int64_t rows,
                const Randomness& dropout);

struct Evaluation {
  Scores part;                // over a fixed part of the held-out tokens
  std::optional<Scores> all;  // over all of them
};

enum class Extent { part, all };

struct EvaluationPlan {
  int64_t batch = 1, accumulate = 1;  // windows in a batch, and the parts in which it is computed
  int64_t tokens = 0;                 // of the part, about; 0: all
};

/// Evaluates without dropout. The part is made of batches that are spread evenly over the data, the
/// same ones for either extent, so that the losses of a run compare. Data ranks share the batches, and
/// all get the result, whose sums are added in the same order whatever their number. Nothing when `stop`,
/// which all ranks must answer alike, said true between two batches.
std::optional<Evaluation> evaluate(LanguageModel& model, const ValidationData& data,
                                   const EvaluationPlan& plan, Extent extent,
                                   const std::function<bool()>& stop = {},
                                   const parallel::Communicator& dp = {});

}  // namespace gradus::train
