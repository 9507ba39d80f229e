#include "train/run_data.h"

#include <gtest/gtest.h>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

Settings small(const std::string& text) {
  Settings s;
  s.text = text, s.holdout = 0.25, s.length = 4, s.batch = 2, s.seed = 1, s.vocabulary = 256;
  s.tokenizer = "bytes";
  return s;
}

TEST(RunData, TheLastPartOfATextIsHeldOut) {
  TemporaryDirectory d;
  Settings s = small(write_text(d / "a.txt", "abcdefghijklmnopqrst"));  // 20 bytes
  const RunData data = open_data(s);
  EXPECT_EQ(data.training->tokens(), 15);
  EXPECT_EQ(data.validation->targets(), 4);
  EXPECT_EQ(data.validation->batch(0, 1).inputs, std::vector<int32_t>({'p', 'q', 'r', 's'}));
  EXPECT_TRUE(holds(data.description, {"a.txt: 20 tokens", "15 for training", "5 held out"}));
}

TEST(RunData, HeldOutTokensMayHaveAFileOfTheirOwn) {
  TemporaryDirectory d;
  Settings s = small(write_text(d / "a.txt", "abcdefghijklmnopqrst"));
  s.validation = write_text(d / "b.txt", "012");
  const RunData data = open_data(s);
  EXPECT_EQ(data.training->tokens(), 20);
  EXPECT_EQ(data.validation->targets(), 2);
}

TEST(RunData, TheVocabularyIsThatOfTheFormatUnlessItIsChosen) {
  TemporaryDirectory d;
  Settings s = small("");
  s.data = write_values<uint16_t>(d / "a.bin", std::vector<uint16_t>(100, 999)), s.vocabulary = 0;
  open_data(s);
  EXPECT_EQ(s.vocabulary, 50304);  // 50257 ids, to a multiple of 128
  s.vocabulary = 1000;
  open_data(s);
  EXPECT_EQ(s.vocabulary, 1000);
}

TEST(RunData, D1_AnIdOutsideTheVocabularyIsAnError) {
  TemporaryDirectory d;
  std::vector<uint16_t> ids(100, 5);
  ids[37] = 999;
  Settings s = small("");
  s.data = write_values(d / "a.bin", ids), s.vocabulary = 999;
  const std::string error = error_of([&] { open_data(s); });
  EXPECT_TRUE(holds(error, {"a.bin", "token 37", "id 999", "vocabulary is 999"})) << error;
}

TEST(RunData, D2_TextShorterThanABatchIsAnError) {
  TemporaryDirectory d;
  Settings s = small(write_text(d / "a.txt", "abcdefghij"));
  const std::string error = error_of([&] { open_data(s); });
  EXPECT_TRUE(holds(error, {"a.txt", "10 tokens", "needs 9"})) << error;
}

TEST(RunData, AFileOfTheOtherKindIsAnErrorThatNamesItsOption) {
  TemporaryDirectory d;
  Settings s = small(write_values<uint16_t>(d / "a.bin", std::vector<uint16_t>(100, 5)));
  EXPECT_TRUE(holds(error_of([&] { open_data(s); }), {"a.bin", "token file", "--data"}));
  s.text = "", s.data = write_text(d / "a.txt", "abcdefghijklmnopqrst");
  EXPECT_TRUE(holds(error_of([&] { open_data(s); }), {"a.txt", "is a text", "--text"}));
}

}  // namespace
}  // namespace gradus::train
