#include "train/text_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// In UTF-8 every character has one byte that is no continuation.
size_t columns(const std::string& line) {
  size_t count = 0;
  for (char c : line) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

// 10 columns of 2 dots and 3 rows of 4: 20 × 12 dots, the diagonal rises 11 dots over 19. Dots are
// numbered ⠁ 1, ⠂ 2, ⠄ 3, ⡀ 7 down the left side of a cell, ⠈ 4, ⠐ 5, ⠠ 6, ⢀ 8 down the right side.
TEST(TextPlot, ALineIsADiagonalOfDots) {
  const Curve line{"a line", {{0, 0}, {19, 11}}};
  const auto lines = lines_of(text_plot(line, {.width = 14, .height = 3, .x_label = ""}));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "a line");
  // Dot (x, round(11 x/19)): x = 0 … 19 at heights 0 1 1 2 2 3 3 4 5 5 6 6 7 8 8 9 9 10 10 11.
  EXPECT_EQ(lines[1], "10 ┤      ⢀⡠⠔⠊");
  EXPECT_EQ(lines[2], " 5 ┤   ⢀⠤⠒⠁");
  EXPECT_EQ(lines[3], " 0 ┤⡠⠔⠊⠁");
  EXPECT_EQ(lines[4].substr(0, 6), "   └");
}

TEST(TextPlot, NoLineIsWiderThanAsked) {
  const Curve curve = sample(
      "x", [](int64_t n) { return 1e-4 * std::sin(double(n)) + 1e-4; }, 12345);
  for (int width : {20, 40, 80, 133}) {
    const auto lines = lines_of(text_plot(curve, {.width = width, .height = 7}));
    ASSERT_EQ(lines.size(), 10u) << width;
    size_t widest = 0;
    for (const std::string& line : lines) widest = std::max(widest, columns(line));
    EXPECT_LE(widest, size_t(width));
    EXPECT_GE(widest, size_t(width) - 1);  // and the room is used
  }
  EXPECT_TRUE(holds(error_of([&] { text_plot(curve, {.width = 9}); }), {"at least", "9"}));
}

TEST(TextPlot, AGapIsNotDrawnAcross) {
  const Curve gap{"gap", {{0, 1}, {1, NAN}, {2, NAN}, {3, 1}}};
  const auto lines = lines_of(text_plot(gap, {.width = 30, .height = 3, .x_label = ""}));
  std::string all;
  for (const std::string& line : lines) all += line;
  size_t cells = 0;
  for (size_t at = all.find("\xE2\xA0"); at != std::string::npos; at = all.find("\xE2\xA0", at + 1))
    ++cells;
  EXPECT_EQ(cells, 2u);
}

}  // namespace
}  // namespace gradus::train
