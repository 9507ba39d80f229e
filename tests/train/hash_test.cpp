#include "train/hash.h"

#include <gtest/gtest.h>

namespace gradus::train {
namespace {

// Values of `xxh128sum` (xxHash 0.8), for each of the ways in which it treats short and long inputs.
TEST(Hash, IsWhatXxh128sumPrints) {
  const auto hash = [](const std::string& text) { return hash_of(text.data(), text.size()); };
  EXPECT_EQ(hash(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash("a"), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(hash("abcdefgh"), "dac23237af37353342b702b313880f12");
  EXPECT_EQ(hash("The quick brown fox jumps over"), "4b6e42b6424a2736d4bd3da1ac3f341d");
  EXPECT_EQ(hash(std::string(100, 0)), "6ba30a4e9dffe1ff801fedc74ccd608c");
  EXPECT_EQ(hash(std::string(200, 0)), "68ac297d87ba6fb2f24858a3a3e3018f");
  EXPECT_EQ(hash(std::string(100000, 0)), "e1f876364c6fec62315c72a64b7df4d2");
}

}  // namespace
}  // namespace gradus::train
