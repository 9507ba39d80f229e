#pragma once
// What an evaluation counts, so that parts add up.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace gradus::train {

/// Losses summed over targets, in nats, and their number.
struct LossSum {
  double sum = 0;
  int64_t count = 0;

  double mean() const { return count > 0 ? sum / double(count) : 0; }
  LossSum& operator+=(const LossSum& other) {
    sum += other.sum, count += other.count;
    return *this;
  }
};

/// The loss over targets; of a BERT also how many masked words and pairs it got right.
struct Scores : LossSum {
  int64_t right = 0;
  LossSum pairs;
  int64_t right_pairs = 0;

  double accuracy() const { return double(right) / double(count > 0 ? count : 1); }
  double pair_accuracy() const {
    return double(right_pairs) / double(pairs.count > 0 ? pairs.count : 1);
  }
  Scores& operator+=(const Scores& other);
};

/// 95 % confidence interval of a probability p of which n independent trials have succeeded `right`
/// times: all p for which that is no further than 1.96 of its standard deviations from n p. With
/// f = right/n and z = 1.96 [Wilson 1927]:
///
///   (f + z²/2n ± z √(f(1 − f)/n + z²/4n²)) / (1 + z²/n)
std::pair<double, double> confidence_interval(int64_t right, int64_t n);

/// One line for people. `unigram_entropy` is what the loss is to be compared with.
std::string scores_text(const Scores& scores, std::optional<double> unigram_entropy);

}  // namespace gradus::train
