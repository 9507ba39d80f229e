#pragma once
// Samples for BERT, made anew each time they are needed [Devlin et al. 2019; Liu et al. 2019]:
//
//   text     … s₃ s₄ s₅ s₆ s₇ …                a document of sentences
//   A        the fewest sentences from s₃ on that fill half of the window
//   B        what follows A, or with probability ½ what follows a sentence of another document
//   window   [CLS] A [SEP] B [SEP] [PAD] …     A loses its beginning and B its end where it is too long
//
// Of the tokens of A and B the fraction `mask` is to be filled in: 80 % of these become [MASK], 10 % a
// random token, 10 % stay. They are chosen one by one, or by whole words.
//
// All of this is drawn from the random stream (seed, number of the sample).
#include <memory>

#include "train/batch.h"
#include "train/sentences.h"

namespace gradus::train {

struct PairOptions {
  int64_t length = 128;  // of a window
  double mask = 0.15;
  bool whole_words = false;
  uint64_t seed = 1;
};

/// How samples are made of sentences.
class SentencePairs {
 public:
  /// Error when there are not two documents, one of them with two sentences.
  SentencePairs(EncodedSentences text, std::shared_ptr<const PieceTokenizer> tokenizer,
                PairOptions options);

  const EncodedSentences& text() const { return text_; }
  const PairOptions& options() const { return options_; }
  /// Sentences that another one follows: A can begin with each.
  int64_t beginnings() const { return int64_t(beginnings_.size()); }

  /// A batch of padding.
  Batch empty_batch(int64_t rows) const;
  /// Row `row` becomes sample number `sample`, whose A begins with the sentence `beginning`.
  void fill(Batch& batch, int64_t row, int64_t beginning, uint64_t sample) const;

 private:
  class Draws;
  struct Segments {
    std::span<const int32_t> a, b;
    bool random;
  };
  Segments choose(int64_t first, Draws& draws) const;
  void mask_tokens(Batch& batch, int64_t row, Draws& draws) const;

  EncodedSentences text_;
  std::shared_ptr<const PieceTokenizer> tokenizer_;
  PairOptions options_;
  std::vector<int64_t> beginnings_;
  std::vector<bool> begins_word_;  // of each id
};

class TrainingPairs final : public TrainingData {
 public:
  explicit TrainingPairs(SentencePairs pairs) : pairs_(std::move(pairs)) {}
  const SentencePairs& pairs() const { return pairs_; }
  int64_t windows() const override { return pairs_.beginnings(); }
  int64_t tokens() const override { return pairs_.text().tokens(); }
  /// Each epoch has another order of the beginnings.
  Batch batch(int64_t first_sample, int64_t count) const override;

 private:
  SentencePairs pairs_;
};

class ValidationPairs final : public ValidationData {
 public:
  /// `entropy` is that of the training data.
  ValidationPairs(SentencePairs pairs, double entropy);
  const SentencePairs& pairs() const { return pairs_; }
  int64_t length() const override { return pairs_.options().length; }
  int64_t windows() const override { return pairs_.beginnings(); }
  int64_t targets() const override { return targets_; }
  Batch batch(int64_t index, int64_t rows) const override;
  std::optional<double> unigram_entropy() const override { return entropy_; }

 private:
  SentencePairs pairs_;
  double entropy_;
  int64_t targets_ = 0;
};

/// −Σ p ln p, where p is the share that each id has of all.
double unigram_entropy(const std::vector<int32_t>& ids);

}  // namespace gradus::train
