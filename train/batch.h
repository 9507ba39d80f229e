#pragma once
// What the training loop asks of data: batches, whatever they are made of.
//
//   train/dataset.h           windows of a token stream; each token is to be told from those before it
//   train/sentence_pairs.h    pairs of segments; masked words are to be filled in
#include <cstdint>
#include <optional>
#include <vector>

namespace gradus::train {

inline constexpr int32_t kIgnoreTarget = -1;  // this target takes no part in the loss

struct Batch {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> inputs, targets;  // (rows, length)

  // Of pairs of segments alone: see models/bert.h.
  std::vector<int32_t> types;   // (rows, length)
  std::vector<uint8_t> mask;    // (rows, length): 0 at padding
  std::vector<int32_t> random;  // (rows): 0: the second segment follows, 1: it does not

  /// Targets that are not ignored.
  int64_t target_count() const;
  /// Pairs that are not ignored.
  int64_t pair_count() const;
};

class TrainingData {
 public:
  virtual ~TrainingData() = default;
  virtual int64_t windows() const = 0;  // samples of an epoch
  virtual int64_t tokens() const = 0;
  /// Samples first … first + count − 1, one a row: a function of their numbers and the seed alone, so
  /// that number is all a checkpoint stores.
  virtual Batch batch(int64_t first_sample, int64_t count) const = 0;
};

/// Held-out data in a fixed order, each window once.
class ValidationData {
 public:
  virtual ~ValidationData() = default;
  virtual int64_t length() const = 0;
  virtual int64_t windows() const = 0;
  virtual int64_t targets() const = 0;
  /// Windows index · rows …; always (rows, length): what lies past the end has target kIgnoreTarget.
  virtual Batch batch(int64_t index, int64_t rows) const = 0;
  /// −Σ p log p of single tokens in the training data, in nats: the loss of who knows how frequent
  /// each is and nothing else. Absent where it is not counted.
  virtual std::optional<double> unigram_entropy() const { return {}; }

  int64_t batches(int64_t rows) const { return (windows() + rows - 1) / rows; }
};

}  // namespace gradus::train
