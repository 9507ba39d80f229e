#pragma once
// The loss and the scores of a BERT on batches of sentence pairs.
#include "train/batch.h"
#include "train/language_model.h"
#include "train/scores.h"

namespace gradus::train {

/// Σ over masked words + `pair_weight` · Σ over pairs, of `rows` rows from row `first` on. With the
/// weight N/B, N words and B pairs in the whole step, divided by N and added over all its parts, that is
/// the mean over words plus the mean over pairs. A recorded scalar, in f32.
Tensor masked_loss_sum(LanguageModel& model, const Batch& batch, int64_t first, int64_t rows,
                       const Randomness& dropout, double pair_weight);

/// Without recording.
Scores masked_scores(LanguageModel& model, const Batch& batch, int64_t first, int64_t rows);

}  // namespace gradus::train
