#include "train/piece_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

std::vector<std::string> verses() {
  std::vector<std::string> lines;
  for (int i = 0; i < 60; ++i)
    lines.push_back(" the cat number " + std::to_string(i * 7 % 60) + " sat on the mat; the dog " +
                    std::string(size_t(1 + i % 4), char('a' + i % 26)) + " ran");
  return lines;
}
PieceTokenizer learned(const char* kind, int64_t vocabulary = 90, bool bytes = false) {
  return PieceTokenizer::learn(verses(), {.kind = kind, .vocabulary = vocabulary, .bytes = bytes});
}

TEST(PieceTokenizer, FrequentWordsAreOneToken) {
  for (const char* kind : {"bpe", "unigram"}) {
    const PieceTokenizer t = learned(kind);
    EXPECT_EQ(t.vocabulary(), 90);
    EXPECT_LE(t.encode(" the cat sat").size(), 7u) << kind;  // 12 characters
    EXPECT_FALSE(t.begins_word(t.encode("x").at(0)));
  }
  const PieceTokenizer t = learned("bpe");
  const std::vector<int32_t> ids = t.encode(" the cat sat");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(t.piece(ids[0]), "▁the");
  for (int32_t id : ids) EXPECT_TRUE(t.begins_word(id));
}

TEST(PieceTokenizer, SpecialTokensComeFirstAndAreNeverWritten) {
  const PieceTokenizer t = learned("bpe");
  t.check_specials();
  EXPECT_EQ(t.piece(PieceTokenizer::kPad), "[PAD]");
  EXPECT_EQ(t.piece(PieceTokenizer::kClassify), "[CLS]");
  EXPECT_EQ(t.piece(PieceTokenizer::kMask), "[MASK]");
  EXPECT_EQ(t.decode(PieceTokenizer::kMask), "");
  for (int32_t id : t.encode("[MASK] the [SEP]")) EXPECT_NE(id, PieceTokenizer::kMask);
}

TEST(PieceTokenizer, RoundTripOfEveryLineAndOfWhatWasNeverSeen) {
  for (const char* kind : {"bpe", "unigram"}) {
    const PieceTokenizer t = learned(kind, 340, true);
    for (const std::string& line : verses()) EXPECT_EQ(t.decode(t.encode(line)), line);
    for (const std::string text :
         {"", " ", "  two  spaces ", "new\nline\t", "é ∂ 𝛁 Z", "[MASK]", "the"})
      EXPECT_EQ(t.decode(t.encode(text)), text) << kind;
  }
}

TEST(PieceTokenizer, WithoutBytesAnUnknownCharacterIsUnknown) {
  const PieceTokenizer t = learned("bpe");
  EXPECT_EQ(t.encode("∂"), std::vector<int32_t>({PieceTokenizer::kUnknown}));
  EXPECT_EQ(t.decode(PieceTokenizer::kUnknown), "[UNK]");
}

TEST(PieceTokenizer, TheSameTextGivesTheSameTokenizerBitForBit) {
  for (const char* kind : {"bpe", "unigram"}) {
    TemporaryDirectory a, b;
    learned(kind).save(a / "");
    learned(kind).save(b / "");
    EXPECT_EQ(read_text(a / kTokenizerFile), read_text(b / kTokenizerFile)) << kind;
    EXPECT_GT(read_text(a / kTokenizerFile).size(), 500u);
  }
}

TEST(PieceTokenizer, SavedAndLoadedItIsTheSame) {
  TemporaryDirectory d;
  const PieceTokenizer t = learned("unigram");
  t.save(d / "");
  t.save(d / "");  // over the first
  const PieceTokenizer again = PieceTokenizer::load(d / kTokenizerFile);
  for (const std::string& line : verses()) EXPECT_EQ(again.encode(line), t.encode(line));
  Settings s;
  s.text = "a.txt", s.tokenizer = "unigram", s.vocabulary = 90;
  EXPECT_EQ(tokenizer_of(s, d / "")->encode(" the"), t.encode(" the"));
}

// ---- errors

TEST(PieceTokenizer, AVocabularyThatDoesNotFitTheTextIsAnErrorWithBothNumbers) {
  for (const char* kind : {"bpe", "unigram"}) {
    const std::string much = error_of([&] { learned(kind, 5000); });
    EXPECT_TRUE(holds(much, {"5000", "60 lines", "value <= "})) << much;
    const std::string little = error_of([&] { learned(kind, 12); });
    EXPECT_TRUE(holds(little, {"12 tokens is too small", "5 special", "characters"})) << little;
  }
  const std::string empty = error_of([] { PieceTokenizer::learn({}, {}); });
  EXPECT_TRUE(holds(empty, {"0 lines"})) << empty;
}

TEST(PieceTokenizer, ADamagedFileIsAnErrorThatNamesIt) {
  TemporaryDirectory d;
  learned("bpe").save(d / "");
  const std::string whole = read_text(d / kTokenizerFile);
  for (const std::string& bad :
       {std::string("not a tokenizer"), whole.substr(0, 700), "x" + whole}) {
    write_text(d / kTokenizerFile, bad);
    const std::string error = error_of([&] { PieceTokenizer::load(d / kTokenizerFile); });
    EXPECT_TRUE(holds(error, {"tokenizer.model is no tokenizer of SentencePiece"})) << error;
  }
  EXPECT_TRUE(holds(error_of([&] { PieceTokenizer::load(d / "none.model"); }), {"none.model"}));
}

TEST(PieceTokenizer, AnotherVocabularyThanTheModelsIsAnErrorWithBothSides) {
  TemporaryDirectory d;
  learned("bpe").save(d / "");
  Settings s;
  s.text = "a.txt", s.tokenizer = "bpe", s.vocabulary = 91;
  const std::string error = error_of([&] { tokenizer_of(s, d / ""); });
  EXPECT_TRUE(holds(error, {"tokenizer.model has 90 tokens", "the model has 91"})) << error;
}

TEST(PieceTokenizer, TextThatIsNotUtf8IsAnErrorThatSaysWhere) {
  const PieceTokenizer t = learned("bpe");
  EXPECT_TRUE(holds(error_of([&] { t.encode("abc\xe9"); }), {"byte 3", "--tokenizer bytes"}));
  EXPECT_TRUE(holds(error_of([&] { PieceTokenizer::learn({"\xff"}, {}); }), {"byte 0"}));
}

TEST(PieceTokenizer, NoIdOutsideIsDecoded) {
  const PieceTokenizer t = learned("bpe");
  for (int32_t id : {-1, 90})
    EXPECT_TRUE(holds(error_of([&] { t.decode(id); }), {"90 tokens", std::to_string(id)}));
}

}  // namespace
}  // namespace gradus::train
