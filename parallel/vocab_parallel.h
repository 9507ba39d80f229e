#pragma once
// A vocabulary that is cut over the ranks of a group: rank r has the rows r L … r L + L − 1 of every table
// that has a row for each word, and those columns of the logits.
//
//   V = 11 over 2 ranks, L = 8        rank 0   0 1 2 3 4 5 6 7
//                                     rank 1   8 9 10 · · · · ·      · padding: not there, for anybody
#include "nn/embedding.h"
#include "parallel/tensor_parallel.h"

namespace gradus::parallel {

/// L: the vocabulary divided by the ranks and rounded up to a multiple of 8, so that rows of 16-bit logits
/// begin at multiples of 16 bytes; all of it where there is one rank.
int64_t vocab_rows(int64_t vocabulary, int ranks);

/// (L, width) of a table (vocabulary, width) or, without a width, (L) of a vector.
nn::Parameter vocab_parameter(const TensorParallel& tp, int64_t vocabulary, int64_t width,
                              nn::Initializer init);
nn::Parameter vocab_parameter(const TensorParallel& tp, int64_t vocabulary, nn::Initializer init);

/// Rows `ids` (…) of a table of `total` rows of which each rank has `part`, all of equal length, side by
/// side: (…, C) on all ranks; or where tokens are cut, this rank's rows of it, (numel of ids / n, C).
/// Ids that are another rank's are rows of zeros here, and the sum over the ranks is right.
Tensor rows_of_parts(const TensorParallel& tp, const Tensor& part, const Tensor& ids,
                     int64_t total);

/// An embedding whose table is cut: `weight` (L, width).
struct VocabEmbedding final : nn::Embedding {
  TensorParallel tp;
  int64_t count;

  VocabEmbedding(int64_t count, int64_t width, const TensorParallel& tp = {});
  /// ids (B, T) → (B, T, width), or where tokens are cut (B·T/n, width).
  Tensor operator()(const Tensor& ids) const { return rows_of_parts(tp, weight, ids, count); }
};

/// cross_entropy (ops/ops.h) of logits whose columns are cut: (…, L) here, targets (…) in [0, vocabulary), the
/// same on all ranks, as is the result. The smoothing is over the whole vocabulary; a mass of 1 − a at the
/// target takes label_smoothing = a V / (V − 1).
Tensor vocab_cross_entropy(const Communicator& group, const Tensor& logits, const Tensor& targets,
                           int64_t vocabulary, CrossEntropyOptions options = {});
/// The same of logits that the caller gives away. If nobody else holds them, their gradient is written
/// over them in backward.
Tensor vocab_cross_entropy(const Communicator& group, Tensor&& logits, const Tensor& targets,
                           int64_t vocabulary, CrossEntropyOptions options = {});

/// Logits (…, L) of each rank as logits (…, vocabulary) on all.
Tensor gather_logits(const Communicator& group, const Tensor& logits, int64_t vocabulary);

}  // namespace gradus::parallel
