#include "train/sentence_pairs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/random.h"
#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

/// `documents` of `sentences` each; every sentence begins with its own number, which is one token, and
/// goes on with words of two or more pieces.
Sentences numbered(int documents, int sentences, int words) {
  std::string text;
  for (int s = 0; s < documents * sentences; ++s) {
    if (s % sentences == 0) text += "\n";
    text += char('A' + s / 26), text += char('a' + s % 26);
    for (int w = 0; w < words; ++w) {
      text += " x";
      uint64_t bits = mix(uint64_t(s * words + w));
      for (int i = 0; i < 4; ++i, bits /= 8) text += char('a' + bits % 8);
    }
    text += "\n";
  }
  return read_sentences(text);
}

std::shared_ptr<const PieceTokenizer> tokenizer_for(const Sentences& s) {
  std::vector<std::string> lines;
  for (const std::string& line : s.lines) lines.push_back(" " + line);
  return std::make_shared<const PieceTokenizer>(
      PieceTokenizer::learn(lines, {.kind = "bpe", .vocabulary = 200, .bytes = false}));
}

SentencePairs pairs(const PairOptions& options, int words = 5) {
  const Sentences s = numbered(10, 12, words);
  auto t = tokenizer_for(s);
  EncodedSentences text(s, *t);
  return {std::move(text), t, options};
}

/// The row before anything was masked.
std::vector<int32_t> original(const Batch& b, int64_t row) {
  std::vector<int32_t> ids;
  for (int64_t i = row * b.length; i < (row + 1) * b.length; ++i)
    ids.push_back(b.targets[size_t(i)] == kIgnoreTarget ? b.inputs[size_t(i)]
                                                        : b.targets[size_t(i)]);
  return ids;
}

// Where `part` begins in `ids`, or −1.
int64_t find(std::span<const int32_t> part, const std::vector<int32_t>& ids) {
  const auto at = std::search(ids.begin(), ids.end(), part.begin(), part.end());
  return at == ids.end() ? -1 : at - ids.begin();
}

TEST(SentencePairs, AWindowIsTwoSegmentsBetweenSpecialTokens) {
  const SentencePairs p = pairs({.length = 48});
  Batch b = p.empty_batch(2);
  p.fill(b, 1, 17, 5);
  const std::vector<int32_t> ids = original(b, 1);
  ASSERT_EQ(ids[0], PieceTokenizer::kClassify);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), PieceTokenizer::kSeparate), 2);
  const auto first = std::find(ids.begin(), ids.end(), PieceTokenizer::kSeparate) - ids.begin();
  for (int64_t i = 0; i < 48; ++i) {
    const auto at = size_t(48 + i);
    const bool padding = ids[size_t(i)] == PieceTokenizer::kPad;
    EXPECT_EQ(b.mask[at], !padding) << i;
    EXPECT_EQ(b.types[at], !padding && i > first) << i;
    EXPECT_EQ(b.mask[size_t(i)], 0);  // row 0 is untouched
  }
  EXPECT_EQ(b.random[0], kIgnoreTarget);
  EXPECT_EQ(b.pair_count(), 1);
}

// What comes after A is B, or it lies in another document: looked up in the text itself.
TEST(SentencePairs, BFollowsAOrIsOfAnotherDocument) {
  const SentencePairs p = pairs({.length = 64});
  const auto& text = p.text();
  int64_t follows = 0;
  for (int64_t sample = 0; sample < 300; ++sample) {
    Batch b = p.empty_batch(1);
    p.fill(b, 0, sample % p.beginnings(), uint64_t(sample));
    const std::vector<int32_t> ids = original(b, 0);
    const auto sep = std::find(ids.begin(), ids.end(), PieceTokenizer::kSeparate);
    const auto end = std::find(sep + 1, ids.end(), PieceTokenizer::kSeparate);
    const int64_t a = find(std::span(ids).subspan(1, size_t(sep - ids.begin()) - 1), text.ids());
    const int64_t after_a = a + (sep - ids.begin()) - 1;
    const int64_t at_b = find(
        std::span(ids).subspan(size_t(sep - ids.begin()) + 1, size_t(end - sep) - 1), text.ids());
    ASSERT_GE(a, 0);
    ASSERT_GE(at_b, 0);
    if (b.random[0] == 0) {
      EXPECT_EQ(at_b, after_a) << sample;
      ++follows;
    } else {
      const auto document_at = [&](int64_t token) {
        for (int64_t s = 0;; ++s)
          if (int64_t(text.tokens_of(0, s + 1).size()) > token) return text.document_of(s);
      };
      EXPECT_NE(document_at(at_b), document_at(a)) << sample;
    }
  }
  // Binomial(300, ½) has deviation 8.7; four of them.
  EXPECT_NEAR(double(follows), 150, 35);
}

TEST(SentencePairs, NothingIsLongerThanTheWindowAndMostIsFull) {
  for (int64_t length : {5, 16, 64}) {
    const SentencePairs p = pairs({.length = length});
    int64_t tokens = 0;
    for (int64_t i = 0; i < p.beginnings(); ++i) {
      Batch b = p.empty_batch(1);
      p.fill(b, 0, i, 3);
      tokens += std::accumulate(b.mask.begin(), b.mask.end(), int64_t(0));
      EXPECT_GE(b.target_count(), 1);
    }
    EXPECT_GT(double(tokens), 0.85 * double(p.beginnings() * length)) << length;
  }
}

// n = 20,000 places or more: each share has a standard deviation below √(0.8 · 0.2/n) = 0.003; four of
// them. That a random token is the old one by chance (1 of 195) moves 0.0005 from changed to kept.
TEST(SentencePairs, EightyTenTen) {
  const SentencePairs p = pairs({.length = 64, .mask = 0.15});
  int64_t masked = 0, changed = 0, kept = 0, all = 0, draws = 0;
  std::set<int32_t> random;
  for (uint64_t sample = 0; masked + changed + kept < 20000; ++sample, ++draws) {
    Batch b = p.empty_batch(1);
    p.fill(b, 0, int64_t(sample) % p.beginnings(), sample);
    int64_t words = 0, here = 0;
    for (size_t i = 0; i < 64; ++i) {
      const int32_t id = b.inputs[i], target = b.targets[i];
      words += b.mask[i] && (target != kIgnoreTarget || id >= PieceTokenizer::kSpecials);
      if (target == kIgnoreTarget) {
        EXPECT_NE(id, PieceTokenizer::kMask);
        continue;
      }
      ++here;
      EXPECT_GE(target, PieceTokenizer::kSpecials);
      const bool is_masked = id == PieceTokenizer::kMask, is_kept = id == target;
      masked += is_masked, kept += is_kept, changed += !is_masked && !is_kept;
      if (is_masked || is_kept) continue;
      random.insert(id);
      EXPECT_GE(id, PieceTokenizer::kSpecials);
    }
    EXPECT_EQ(here, std::max<int64_t>(1, std::lround(0.15 * double(words))));
    all += words;
  }
  const double n = double(masked + changed + kept);
  EXPECT_NEAR(double(masked) / n, 0.8, 0.012);
  EXPECT_NEAR(double(changed) / n, 0.0995, 0.009);
  EXPECT_NEAR(double(kept) / n, 0.1005, 0.009);
  EXPECT_NEAR(n / double(all), 0.15, 0.15 * 0.5 / 8);  // rounding: half a token of 8 at most
  EXPECT_GT(random.size(), 180u);  // 2000 draws of 195 ids: each is missed with probability e⁻¹⁰
}

TEST(SentencePairs, WholeWordsAreMaskedTogetherAndOnlyThen) {
  for (bool whole : {true, false}) {
    const SentencePairs p = pairs({.length = 64, .mask = 0.3, .whole_words = whole});
    const auto t = tokenizer_for(numbered(10, 12, 5));
    int64_t torn = 0, words = 0;
    for (uint64_t sample = 0; sample < 50; ++sample) {
      Batch b = p.empty_batch(1);
      p.fill(b, 0, int64_t(sample), sample);
      const std::vector<int32_t> ids = original(b, 0);
      for (size_t i = 1; i < 64; ++i) {
        const bool joined = ids[i] >= PieceTokenizer::kSpecials &&
                            ids[i - 1] >= PieceTokenizer::kSpecials && !t->begins_word(ids[i]);
        if (!joined) continue;
        ++words;
        torn += (b.targets[i] == kIgnoreTarget) != (b.targets[i - 1] == kIgnoreTarget);
      }
    }
    EXPECT_GT(words, 500);
    EXPECT_EQ(torn > 100, !whole) << torn;
    EXPECT_TRUE(!whole || torn == 0) << torn;
  }
}

TEST(SentencePairs, ASampleIsAFunctionOfSeedAndNumber) {
  const auto training = [](uint64_t seed) {
    return TrainingPairs(pairs({.length = 32, .seed = seed}));
  };
  const TrainingPairs a = training(1), b = training(1), c = training(2);
  const Batch whole = a.batch(200, 8), tail = b.batch(204, 4);
  const auto rest = [](const auto& v, size_t from) {
    return std::vector(v.begin() + long(from), v.end());
  };
  EXPECT_EQ(rest(whole.inputs, 4 * 32), tail.inputs);
  EXPECT_EQ(rest(whole.targets, 4 * 32), tail.targets);
  EXPECT_EQ(rest(whole.types, 4 * 32), tail.types);
  EXPECT_EQ(rest(whole.mask, 4 * 32), tail.mask);
  EXPECT_EQ(rest(whole.random, 4), tail.random);
  EXPECT_NE(c.batch(200, 8).inputs, whole.inputs);
}

// Each beginning once an epoch, in another order and with other masks the next time.
TEST(SentencePairs, AnEpochHasEverySentenceThatAnotherFollows) {
  const TrainingPairs t(pairs({.length = 1024}));  // nothing is cut
  EXPECT_EQ(t.windows(), 10 * 11);
  const auto firsts = [&](int64_t epoch) {
    std::vector<std::vector<int32_t>> all;
    for (int64_t i = 0; i < t.windows(); ++i) {
      const auto ids = original(t.batch(epoch * t.windows() + i, 1), 0);
      all.emplace_back(ids.begin(), std::find(ids.begin(), ids.end(), PieceTokenizer::kSeparate));
    }
    return all;
  };
  auto one = firsts(0), two = firsts(1);
  EXPECT_NE(one, two);
  const std::set set_one(one.begin(), one.end());
  EXPECT_EQ(set_one.size(), 110u);
}

TEST(SentencePairs, HeldOutPairsComeInOrderAndTheLastBatchIsFilledUp) {
  const ValidationPairs v(pairs({.length = 32}), 3.5);
  EXPECT_EQ(v.windows(), 110);
  EXPECT_EQ(v.batches(25), 5);
  int64_t targets = 0, random = 0;
  for (int64_t i = 0; i < 5; ++i)
    targets += v.batch(i, 25).target_count(), random += v.batch(i, 25).pair_count();
  EXPECT_EQ(targets, v.targets());
  EXPECT_EQ(random, 110);
  const Batch last = v.batch(4, 25);
  EXPECT_EQ(last.rows, 25);
  EXPECT_EQ(last.random[9] != kIgnoreTarget, true);
  EXPECT_EQ(last.random[10], kIgnoreTarget);
  EXPECT_EQ(v.unigram_entropy(), 3.5);
  EXPECT_TRUE(holds(error_of([&] { v.batch(5, 25); }), {"validation batch 5"}));
}

// p = 1/2, 1/4, 1/4: H = ½ ln 2 + ½ ln 4.
TEST(SentencePairs, UnigramEntropy) {
  EXPECT_NEAR(unigram_entropy({7, 7, 3, 9}), 1.5 * std::log(2), 1e-15);
  EXPECT_EQ(unigram_entropy({5, 5}), 0);
}

TEST(SentencePairs, TextsWithoutPairsAreAnError) {
  const auto t = tokenizer_for(numbered(10, 12, 5));
  const auto make = [&](const std::string& text, int64_t length) {
    return error_of([&] { SentencePairs({read_sentences(text), *t}, t, {.length = length}); });
  };
  EXPECT_TRUE(holds(make("a\nb\nc\n", 16), {"two documents", "1 with 3 sentences", "empty line"}));
  EXPECT_TRUE(holds(make("a\n\nb\n", 16), {"2 with 2 sentences"}));
  EXPECT_TRUE(holds(make("a\nb\n\nc\n", 4), {"window of 4", "[SEP]"}));
}

}  // namespace
}  // namespace gradus::train
