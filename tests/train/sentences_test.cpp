#include "train/sentences.h"

#include <gtest/gtest.h>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

using Lines = std::vector<std::string>;
using Places = std::vector<int64_t>;

TEST(Sentences, AVerseLosesItsReferenceAndAChapterIsADocument) {
  const Sentences s = read_sentences(
      "Ge1:1 In the beginning.\nGe1:2 And the earth.\nGe2:1 Thus the heavens.\nGe21:1 And the "
      "LORD.\n"
      "2Chr21:5 Jehoram was.\n");
  EXPECT_EQ(s.lines, Lines({"In the beginning.", "And the earth.", "Thus the heavens.",
                            "And the LORD.", "Jehoram was."}));
  EXPECT_EQ(s.documents, Places({0, 2, 3, 4, 5}));
}

TEST(Sentences, EmptyLinesPartTheDocumentsOfOtherTexts) {
  const Sentences s =
      read_sentences("\n\none\ntwo\n \t\nthree\n\n\n4:5 is no reference\nnor Ge1 this");
  EXPECT_EQ(s.lines, Lines({"one", "two", "three", "4:5 is no reference", "nor Ge1 this"}));
  EXPECT_EQ(s.documents, Places({0, 2, 3, 5}));
  EXPECT_EQ(read_sentences("").documents, Places({0}));
}

TEST(Sentences, HeldOutDocumentsAreSpreadEvenly) {
  std::string text;
  for (int d = 0; d < 20; ++d) text += std::to_string(d) + " a\n" + std::to_string(d) + " b\n\n";
  const auto [training, held_out] = split(read_sentences(text), 0.2);
  EXPECT_EQ(held_out.lines, Lines({"4 a", "4 b", "9 a", "9 b", "14 a", "14 b", "19 a", "19 b"}));
  EXPECT_EQ(held_out.documents, Places({0, 2, 4, 6, 8}));
  EXPECT_EQ(training.lines.size(), 32u);
  EXPECT_EQ(training.documents.size(), 17u);
  EXPECT_TRUE(holds(error_of([] { split(Sentences{}, 0); }), {"between 0 and 1"}));
}

TEST(Sentences, TokensAreThoseOfTheSentences) {
  const Sentences s = read_sentences("the cat\nsat on\n\nthe mat\n");
  const auto t = PieceTokenizer::learn({" the cat sat on the mat", " the mat"},
                                       {.kind = "bpe", .vocabulary = 25, .bytes = false});
  const EncodedSentences e(s, t);
  EXPECT_EQ(e.sentences(), 3);
  EXPECT_EQ(e.documents(), 2);
  const auto ids = e.tokens_of(0, 2);
  EXPECT_EQ(t.decode(std::vector<int32_t>(ids.begin(), ids.end())), " the cat sat on");
  EXPECT_EQ(e.document_of(0), 0);
  EXPECT_EQ(e.document_of(1), 0);
  EXPECT_EQ(e.document_of(2), 1);
  EXPECT_EQ(e.range_of(1), std::pair(int64_t(2), int64_t(3)));
}

}  // namespace
}  // namespace gradus::train
