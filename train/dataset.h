#pragma once
// From a token stream to batches: windows of T + 1 tokens, T inputs and the T tokens that follow each.
//
//   tokens      t₀ t₁ t₂ t₃ t₄ t₅ t₆ t₇ t₈ …          T = 4
//   window 0    t₀ t₁ t₂ t₃ → t₁ t₂ t₃ t₄
//   window 1                t₄ t₅ t₆ t₇ → t₅ t₆ t₇ t₈      every token is a target once
//
// Sample s of a run is window π(s mod n) of epoch ⌊s / n⌋, π a permutation chosen by (seed, epoch). So
// the order is a function of the seed and of the number of samples consumed: that number is all a
// checkpoint stores, and no layout, micro-batch size or restart can change what comes next.
#include <cstdint>
#include <memory>
#include <utility>

#include "train/batch.h"
#include "train/tokens.h"

namespace gradus::train {

/// Tokens [first, first + count) of a stream: one side of a split.
struct TokenRange {
  std::shared_ptr<const Tokens> tokens;
  int64_t first = 0, count = 0;
};

/// The whole stream.
TokenRange whole(std::shared_ptr<const Tokens> tokens);

/// {training, validation}: the last ⌊fraction · size⌋ tokens are held out, 0 < fraction < 1.
std::pair<TokenRange, TokenRange> split(std::shared_ptr<const Tokens> tokens, double fraction);

class TrainingWindows final : public TrainingData {
 public:
  /// Windows of `length` targets. Error when there are fewer than batch · length + 1 tokens.
  TrainingWindows(TokenRange range, int64_t length, int64_t batch, uint64_t seed);

  /// n = ⌊(count − 1) / length⌋ windows an epoch.
  int64_t windows() const override { return (range_.count - 1) / length_; }
  int64_t tokens() const override { return range_.count; }

  /// Where the window of sample `s` begins, counted in the range's tokens. Epoch 0 begins its windows
  /// at token 0; later ones shift all of them by some o < length, so that a window's edges fall
  /// elsewhere: the first o tokens are then left out and the last window is moved back to the end.
  int64_t start_of(int64_t sample) const;

  /// Samples first … first + count − 1, one a row; an epoch may end within a batch.
  Batch batch(int64_t first_sample, int64_t count) const override;

 private:
  TokenRange range_;
  int64_t length_;
  uint64_t seed_;
};

/// The held-out tokens in order, each but the first a target exactly once.
class ValidationWindows final : public ValidationData {
 public:
  /// Error when there are fewer than two tokens.
  ValidationWindows(TokenRange range, int64_t length);

  int64_t length() const override { return length_; }
  int64_t windows() const override { return (range_.count - 1 + length_ - 1) / length_; }
  int64_t targets() const override { return range_.count - 1; }
  Batch batch(int64_t index, int64_t rows) const override;

 private:
  TokenRange range_;
  int64_t length_;
};

}  // namespace gradus::train
