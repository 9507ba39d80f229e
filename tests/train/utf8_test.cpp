#include "train/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace gradus::train {
namespace {

TEST(Utf8, LengthsOneToFour) {
  EXPECT_EQ(find_invalid_utf8(""), -1);
  EXPECT_EQ(find_invalid_utf8("plain\n"), -1);
  EXPECT_EQ(find_invalid_utf8("é ∂ 𝛁"), -1);
  EXPECT_EQ(find_invalid_utf8("\xf4\x8f\xbf\xbf\xed\x9f\xbf"), -1);  // U+10FFFF, U+D7FF
}

TEST(Utf8, WhatIsNone) {
  EXPECT_EQ(find_invalid_utf8("ab\xe9z"), 2);           // Latin-1
  EXPECT_EQ(find_invalid_utf8("ab\xc3"), 2);            // cut off
  EXPECT_EQ(find_invalid_utf8("\x80"), 0);              // begins in the middle
  EXPECT_EQ(find_invalid_utf8("a\xc0\xaf"), 1);         // '/' in two bytes
  EXPECT_EQ(find_invalid_utf8("\xe0\x9f\xbf"), 0);      // U+7FF in three
  EXPECT_EQ(find_invalid_utf8("\xf0\x8f\xbf\xbf"), 0);  // U+FFFF in four
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0);      // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0);  // U+110000
}

}  // namespace
}  // namespace gradus::train
