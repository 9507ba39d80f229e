// The inputs in tests/fuzz/corpus, and some thousand small changes to each, the same ones every time.
// `make fuzz` looks further; what it finds is kept in the corpus.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/random.h"
#include "tests/fuzz/targets.h"

namespace gradus::fuzz {
namespace {

namespace fs = std::filesystem;
using Input = std::vector<uint8_t>;

std::vector<Input> corpus_of(const std::string& target) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator("tests/fuzz/corpus/" + target))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Input> inputs;
  for (const fs::path& path : paths) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    const std::string bytes = text.str();
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}

// Numbers that depend on how often it was asked, and on nothing else.
class Dice {
 public:
  size_t below(size_t n) { return size_t(mix(++count_) % n); }

 private:
  uint64_t count_ = 0;
};

// Bytes that mean something to a reader of JSON or of integers.
constexpr uint8_t kTelling[] = {0,   1,   0x7f, 0x80, 0xff, '"', '{',
                                '}', '[', ']',  ',',  ':',  '-', '9'};

// One to four changes: a byte replaced, a bit flipped, bytes removed, repeated, or taken from another
// input.
Input changed(Input input, const Input& other, Dice& dice) {
  for (size_t i = 0, count = 1 + dice.below(4); i < count && !input.empty(); ++i) {
    const size_t at = dice.below(input.size()),
                 length = 1 + dice.below(std::min<size_t>(16, input.size() - at));
    const auto begin = input.begin() + std::ptrdiff_t(at), end = begin + std::ptrdiff_t(length);
    switch (dice.below(5)) {
      case 0:
        *begin = kTelling[dice.below(std::size(kTelling))];
        break;
      case 1:
        *begin ^= uint8_t(1u << dice.below(8));
        break;
      case 2:
        input.erase(begin, end);
        break;
      case 3: {
        const Input piece(begin, end);
        input.insert(begin, piece.begin(), piece.end());
        break;
      }
      default: {
        if (other.empty()) break;
        const size_t from = dice.below(other.size());
        const size_t many = std::min(length, other.size() - from);
        std::copy_n(other.begin() + std::ptrdiff_t(from), std::min(many, input.size() - at), begin);
      }
    }
  }
  return input;
}

class Readers : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(All, Readers, testing::ValuesIn(kTargets),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Readers, EveryChangedInputIsReadOrRefused) {
  constexpr size_t kChanges = 4000;
  const std::vector<Input> inputs = corpus_of(GetParam().name);
  ASSERT_FALSE(inputs.empty());
  Dice dice;
  for (const Input& input : inputs) ASSERT_NO_THROW(GetParam().run(input));
  for (size_t i = 0; i < kChanges; ++i) {
    const Input input = changed(inputs[i % inputs.size()], inputs[dice.below(inputs.size())], dice);
    ASSERT_NO_THROW(GetParam().run(input)) << std::string(input.begin(), input.end());
  }
}

}  // namespace
}  // namespace gradus::fuzz
