#include "train/tokenizer.h"

#include <gtest/gtest.h>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

TEST(Tokenizer, TextIsBytesAndOtherTokensAreNumbers) {
  Settings s;
  s.text = "a.txt", s.tokenizer = "bytes", s.vocabulary = 256;
  const auto bytes = tokenizer_of(s, "");
  EXPECT_EQ(bytes->vocabulary(), 256);
  EXPECT_EQ(bytes->encode("hé\n"), std::vector<int32_t>({'h', 0xC3, 0xA9, '\n'}));
  EXPECT_EQ(bytes->decode(bytes->encode("hé\n")), "hé\n");

  s.text = "", s.data = "a.bin", s.vocabulary = 50257;
  const auto numbers = tokenizer_of(s, "");
  EXPECT_EQ(numbers->encode(" 50256 0  7"), std::vector<int32_t>({50256, 0, 7}));
  EXPECT_EQ(numbers->decode({50256, 0}), "50256 0 ");
  for (const char* bad : {"50257", "-1", "x", "1.5", "7x"}) {
    const std::string error = error_of([&] { numbers->encode(bad); });
    EXPECT_TRUE(holds(error, {bad, "0 to 50256"})) << error;
  }
}

TEST(Tokenizer, ControlCharactersArePrintedAsQuestionMarks) {
  EXPECT_EQ(printable("a\tb\nc\x07\x7f é"), "a\tb\nc?? é");
}

}  // namespace
}  // namespace gradus::train
