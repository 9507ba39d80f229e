#include "train/tokens.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

std::vector<int32_t> ids_of(const Tokens& tokens) {
  std::vector<int32_t> ids(size_t(tokens.size()));
  tokens.copy(0, tokens.size(), ids.data());
  return ids;
}

// An llm.c file: a header of 256 words, then the ids.
template <class Id>
std::string write_llmc(const std::string& path, int32_t magic, int32_t version, int32_t count,
                       const std::vector<Id>& ids) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic, header[1] = version, header[2] = count;
  write_values(path, header);
  const auto* bytes = reinterpret_cast<const char*>(ids.data());
  std::ofstream(path, std::ios::binary | std::ios::app)
      .write(bytes, std::streamsize(ids.size() * sizeof(Id)));
  return path;
}

TEST(Tokens, EachByteOfATextIsAToken) {
  TemporaryDirectory d;
  const Tokens tokens(write_text(d / "a.txt", std::string("a\0\xff\n", 4)));
  EXPECT_EQ(tokens.format(), TokenFormat::text);
  EXPECT_EQ(ids_of(tokens), (std::vector<int32_t>{97, 0, 255, 10}));
}

TEST(Tokens, ReadsAHeaderlessFile) {
  TemporaryDirectory d;
  const Tokens tokens(write_values<uint16_t>(d / "train.bin", {15496, 0, 50256}));
  EXPECT_EQ(tokens.format(), TokenFormat::nanogpt);
  EXPECT_EQ(ids_of(tokens), (std::vector<int32_t>{15496, 0, 50256}));
}

TEST(Tokens, ReadsBothFormatsWithAHeader) {
  TemporaryDirectory d;
  const Tokens gpt2(write_llmc<uint16_t>(d / "a.bin", 20240520, 1, 3, {7, 65535, 9}));
  EXPECT_EQ(gpt2.format(), TokenFormat::llmc_gpt2);
  EXPECT_EQ(ids_of(gpt2), (std::vector<int32_t>{7, 65535, 9}));
  const Tokens llama(write_llmc<uint32_t>(d / "b.bin", 20240801, 7, 2, {128000, 1}));
  EXPECT_EQ(llama.format(), TokenFormat::llmc_llama3);
  EXPECT_EQ(ids_of(llama), (std::vector<int32_t>{128000, 1}));
}

TEST(Tokens, APatternNamesFilesThatFollowEachOther) {
  TemporaryDirectory d;
  write_values<uint16_t>(d / "part_2.bin", {4});
  write_values<uint16_t>(d / "part_1.bin", {1, 2, 3});
  write_values<uint16_t>(d / "part_3.bin", {5, 6});
  const Tokens tokens(d / "part_*.bin");
  EXPECT_EQ(ids_of(tokens), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  std::vector<int32_t> middle(4);
  tokens.copy(2, 4, middle.data());  // the end of one file, all of the next, the start of the third
  EXPECT_EQ(middle, (std::vector<int32_t>{3, 4, 5, 6}));
  EXPECT_THROW(tokens.copy(3, 4, middle.data()), Error);
}

TEST(Tokens, FilesOfOneSetMustAgreeInFormat) {
  TemporaryDirectory d;
  write_values<uint16_t>(d / "part_1.bin", {1, 2});
  write_llmc<uint16_t>(d / "part_2.bin", 20240520, 1, 1, {3});
  const std::string text = error_of([&] { Tokens{d / "part_*.bin"}; });
  EXPECT_TRUE(holds(text, {"part_1.bin", "nanoGPT", "part_2.bin", "llm.c"})) << text;
}

TEST(Tokens, D1_AnIdOutsideTheVocabularyIsNamed) {
  TemporaryDirectory d;
  write_values<uint16_t>(d / "part_1.bin", {1, 2, 999});
  write_values<uint16_t>(d / "part_2.bin", {3, 1000, 4, 5000});
  const Tokens tokens(d / "part_*.bin");
  EXPECT_NO_THROW(tokens.check_ids(5001));
  const std::string text = error_of([&] { tokens.check_ids(1000); });
  EXPECT_TRUE(holds(text, {"part_2.bin", "token 1 ", "id 1000", "vocabulary is 1000"})) << text;
}

TEST(Tokens, D1_AnIdBeyond31BitsIsFoundToo) {
  TemporaryDirectory d;
  const Tokens tokens(write_llmc<uint32_t>(d / "b.bin", 20240801, 7, 2, {1, 0x80000001u}));
  const std::string text = error_of([&] { tokens.check_ids(128256); });
  EXPECT_TRUE(holds(text, {"token 1 ", "2147483649"})) << text;
}

TEST(Tokens, D1_BytesAreComparedWithASmallVocabulary) {
  TemporaryDirectory d;
  const Tokens tokens(write_text(d / "a.txt", "abcz"));
  EXPECT_NO_THROW(tokens.check_ids(256));
  EXPECT_NO_THROW(tokens.check_ids('z' + 1));
  const std::string text = error_of([&] { tokens.check_ids('z'); });
  EXPECT_TRUE(holds(text, {"a.txt", "token 3", "id 122"})) << text;
}

TEST(Tokens, D3_AMissingFileNamesPathDirectoryAndCommand) {
  TemporaryDirectory d;
  std::string text = error_of([&] { Tokens{d / "no.txt"}; });
  EXPECT_TRUE(holds(text, {"no.txt", "searched " + d.path(), "bible -f"})) << text;
  text = error_of([&] { Tokens{d / "sub/train_*.bin"}; });
  EXPECT_TRUE(holds(text, {"train_*.bin", d / "sub (which does not exist)", "prepare.py"})) << text;
}

TEST(Tokens, D3_EmptyFilesDirectoriesAndPipesAreErrorsAtOnce) {
  TemporaryDirectory d;
  write_text(d / "empty.txt", "");
  ASSERT_EQ(mkfifo((d / "pipe").c_str(), 0600), 0);  // nobody will ever write to it
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(holds(error_of([&] { Tokens{d / "empty.txt"}; }), {"empty.txt is empty"}));
  EXPECT_TRUE(holds(error_of([&] { Tokens{d.path()}; }), {d.path() + " is a directory"}));
  EXPECT_TRUE(holds(error_of([&] { Tokens{d / "pipe"}; }), {"pipe is not a regular file"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(Tokens, D4_AWrongMagicNumberNamesExpectedFoundAndRemedy) {
  TemporaryDirectory d;  // 20240522 is the magic number of llm.c's evaluation files
  write_llmc<uint16_t>(d / "eval.bin", 20240522, 1, 2, {1, 2});
  const std::string text = error_of([&] { Tokens{d / "eval.bin"}; });
  EXPECT_TRUE(holds(text, {"eval.bin", "20240522", "20240520", "20240801", "dev/data"})) << text;
}

TEST(Tokens, D4_AWrongVersionNamesExpectedFoundAndRemedy) {
  TemporaryDirectory d;
  write_llmc<uint16_t>(d / "a.bin", 20240520, 3, 2, {1, 2});
  const std::string text = error_of([&] { Tokens{d / "a.bin"}; });
  EXPECT_TRUE(holds(text, {"a.bin", "version 3", "expected 1", "dev/data"})) << text;
}

TEST(Tokens, D5_ALengthThatContradictsTheHeaderNamesBoth) {
  TemporaryDirectory d;
  write_llmc<uint16_t>(d / "short.bin", 20240520, 1, 4, {1, 2, 3});
  std::string text = error_of([&] { Tokens{d / "short.bin"}; });
  EXPECT_TRUE(holds(text, {"short.bin", "1030 bytes", "1032"})) << text;
  write_llmc<uint32_t>(d / "long.bin", 20240801, 7, 1, {1, 2});
  text = error_of([&] { Tokens{d / "long.bin"}; });
  EXPECT_TRUE(holds(text, {"long.bin", "1032 bytes", "1028"})) << text;
  write_values<int32_t>(d / "header.bin", {20240520, 1, 4});
  text = error_of([&] { Tokens{d / "header.bin"}; });
  EXPECT_TRUE(holds(text, {"header.bin", "12 bytes", "1024"})) << text;
  write_llmc<uint16_t>(d / "negative.bin", 20240520, 1, -1, {});
  EXPECT_TRUE(holds(error_of([&] { Tokens{d / "negative.bin"}; }), {"-1 tokens"}));
}

TEST(Tokens, D5_AnOddNumberOfBytesIsNotReadAsIds) {
  TemporaryDirectory d;
  const std::string text = error_of([&] { Tokens{write_text(d / "a.bin", "abcde")}; });
  EXPECT_TRUE(holds(text, {"a.bin", "5 bytes", "odd"})) << text;
}

}  // namespace
}  // namespace gradus::train
