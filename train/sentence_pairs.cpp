#include "train/sentence_pairs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/check.h"
#include "core/random.h"
#include "train/permutation.h"

namespace gradus::train {

/// Random numbers of one sample, one after the other.
class SentencePairs::Draws {
 public:
  Draws(uint64_t seed, uint64_t sample) : stream_(Philox::at(seed, fnv1a("pairs"), sample)) {}
  double uniform() { return stream_.uniform<double>(next_++); }
  int64_t below(int64_t n) { return int64_t(uniform() * double(n)); }

 private:
  Philox stream_;
  uint64_t next_ = 0;
};

namespace {

constexpr int64_t kSpecialPlaces = 3;  // [CLS], [SEP], [SEP]

// Places of a row that are masked together: one token, or all tokens of a word.
using Unit = std::vector<size_t>;

std::vector<Unit> units_of(std::span<const int32_t> ids, const std::vector<bool>& begins_word,
                           bool whole_words) {
  std::vector<Unit> units;
  bool inside = false;  // of a word
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool special = ids[i] < PieceTokenizer::kSpecials && ids[i] != PieceTokenizer::kUnknown;
    if (!special && inside && whole_words && !begins_word[size_t(ids[i])])
      units.back().push_back(i);
    else if (!special)
      units.push_back({i});
    inside = !special;
  }
  return units;
}

}  // namespace

SentencePairs::SentencePairs(EncodedSentences text, std::shared_ptr<const PieceTokenizer> tokenizer,
                             PairOptions options)
    : text_(std::move(text)), tokenizer_(std::move(tokenizer)), options_(options) {
  for (int64_t d = 0; d < text_.documents(); ++d)
    for (auto [i, end] = text_.range_of(d); i + 1 < end; ++i) beginnings_.push_back(i);
  check(text_.documents() >= 2 && !beginnings_.empty(),
        "pairs of sentences need two documents, one with two sentences at least, but there are ",
        text_.documents(), " with ", text_.sentences(),
        " sentences; write a sentence a line and an empty line between documents");
  check(options_.length >= kSpecialPlaces + 2, "a window of ", options_.length,
        " tokens cannot hold two segments: [CLS] A [SEP] B [SEP]");
  for (int32_t id = 0; id < tokenizer_->vocabulary(); ++id)
    begins_word_.push_back(tokenizer_->begins_word(id));
}

Batch SentencePairs::empty_batch(int64_t rows) const {
  const auto n = size_t(rows * options_.length);
  return {.rows = rows,
          .length = options_.length,
          .inputs = std::vector<int32_t>(n, PieceTokenizer::kPad),
          .targets = std::vector<int32_t>(n, kIgnoreTarget),
          .types = std::vector<int32_t>(n, 0),
          .mask = std::vector<uint8_t>(n, 0),
          .random = std::vector<int32_t>(size_t(rows), kIgnoreTarget)};
}

SentencePairs::Segments SentencePairs::choose(int64_t first, Draws& draws) const {
  const int64_t room = options_.length - kSpecialPlaces, half = room / 2;
  const auto [begin, end] = text_.range_of(text_.document_of(first));
  int64_t last = first + 1;
  while (last + 1 < end && int64_t(text_.tokens_of(first, last).size()) < half) ++last;
  Segments s{text_.tokens_of(first, last), {}, draws.uniform() < 0.5};
  int64_t next = last, next_end = end;
  if (s.random) {
    next = draws.below(text_.sentences() - (end - begin));
    if (next >= begin) next += end - begin;  // a sentence of another document
    next_end = text_.range_of(text_.document_of(next)).second;
  }
  s.b = text_.tokens_of(next, next_end);
  const auto length_a =
      std::min<int64_t>(int64_t(s.a.size()), std::max(half, room - int64_t(s.b.size())));
  s.a = s.a.last(size_t(length_a));
  s.b = s.b.first(size_t(std::min<int64_t>(int64_t(s.b.size()), room - length_a)));
  return s;
}

void SentencePairs::fill(Batch& batch, int64_t row, int64_t beginning, uint64_t sample) const {
  Draws draws(options_.seed, sample);
  const Segments s = choose(beginnings_[size_t(beginning)], draws);
  const auto begin = size_t(row * batch.length);
  size_t at = begin;
  const auto put = [&](int32_t id, int32_t type) {
    batch.inputs[at] = id, batch.types[at] = type, batch.mask[at] = 1;
    ++at;
  };
  put(PieceTokenizer::kClassify, 0);
  for (int32_t id : s.a) put(id, 0);
  put(PieceTokenizer::kSeparate, 0);
  for (int32_t id : s.b) put(id, 1);
  put(PieceTokenizer::kSeparate, 1);
  batch.random[size_t(row)] = s.random;
  mask_tokens(batch, row, draws);
}

void SentencePairs::mask_tokens(Batch& batch, int64_t row, Draws& draws) const {
  const auto length = size_t(batch.length), begin = size_t(row) * length;
  const std::span<int32_t> ids = std::span(batch.inputs).subspan(begin, length);
  std::vector<Unit> units = units_of(ids, begins_word_, options_.whole_words);
  const auto maskable = std::accumulate(units.begin(), units.end(), size_t(0),
                                        [](size_t n, const Unit& u) { return n + u.size(); });
  size_t left = std::max<size_t>(1, size_t(std::lround(options_.mask * double(maskable))));
  for (size_t i = 0; i < units.size() && left > 0; ++i) {
    std::swap(units[i], units[i + size_t(draws.below(int64_t(units.size() - i)))]);
    if (units[i].size() > left) continue;  // a word that is too long for what is left
    left -= units[i].size();
    for (size_t place : units[i]) {
      batch.targets[begin + place] = ids[place];
      const double u = draws.uniform();
      if (u < 0.8)
        ids[place] = PieceTokenizer::kMask;
      else if (u < 0.9)
        ids[place] = PieceTokenizer::kSpecials +
                     int32_t(draws.below(int64_t(begins_word_.size()) - PieceTokenizer::kSpecials));
    }
  }
}

Batch TrainingPairs::batch(int64_t first_sample, int64_t count) const {
  Batch batch = pairs_.empty_batch(count);
  for (int64_t row = 0; row < count; ++row) {
    const auto sample = uint64_t(first_sample + row), n = uint64_t(windows());
    const uint64_t key = mix(mix(pairs_.options().seed) + sample / n);
    pairs_.fill(batch, row, int64_t(permute_index(sample % n, n, key)), sample);
  }
  return batch;
}

ValidationPairs::ValidationPairs(SentencePairs pairs, double entropy)
    : pairs_(std::move(pairs)), entropy_(entropy) {
  for (int64_t i = 0; i < windows(); ++i) targets_ += batch(i, 1).target_count();
}

Batch ValidationPairs::batch(int64_t index, int64_t rows) const {
  check(rows > 0 && index >= 0 && index < batches(std::max<int64_t>(rows, 1)), "validation batch ",
        index, " of ", rows, " rows does not exist");
  Batch batch = pairs_.empty_batch(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t window = index * rows + row;
    if (window < windows()) pairs_.fill(batch, row, window, uint64_t(window));
  }
  return batch;
}

double unigram_entropy(const std::vector<int32_t>& ids) {
  std::map<int32_t, int64_t> counts;
  for (int32_t id : ids) ++counts[id];
  double entropy = 0;
  for (const auto& [id, count] : counts) {
    const double p = double(count) / double(ids.size());
    entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace gradus::train
