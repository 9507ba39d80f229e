#include "train/scores.h"

#include <cmath>
#include <cstdio>

#include "train/units.h"

namespace gradus::train {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[160];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

}  // namespace

Scores& Scores::operator+=(const Scores& other) {
  LossSum::operator+=(other);
  right += other.right;
  pairs += other.pairs;
  right_pairs += other.right_pairs;
  return *this;
}

std::pair<double, double> confidence_interval(int64_t right, int64_t n) {
  if (n == 0) return {0, 1};
  const double z = 1.959963984540054, count = double(n), f = double(right) / count;
  const double middle = f + z * z / (2 * count), scale = 1 + z * z / count;
  const double reach = z * std::sqrt(f * (1 - f) / count + z * z / (4 * count * count));
  return {(middle - reach) / scale, (middle + reach) / scale};
}

std::string scores_text(const Scores& s, std::optional<double> unigram_entropy) {
  const std::string loss = format("validation loss %.4f over ", s.mean()) + with_commas(s.count);
  if (s.pairs.count == 0) return loss + " held-out tokens";
  const auto [low, high] = confidence_interval(s.right_pairs, s.pairs.count);
  return loss + " masked tokens" +
         (unigram_entropy ? format(" (unigram entropy %.4f)", *unigram_entropy) : std::string()) +
         format(
             ", %.1f %% right; next sentence: loss %.4f, %.1f %% right (95 %% confidence: "
             "%.1f to %.1f %%) of ",
             100 * s.accuracy(), s.pairs.mean(), 100 * s.pair_accuracy(), 100 * low, 100 * high) +
         with_commas(s.pairs.count) + " pairs";
}

}  // namespace gradus::train
