#include "train/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace gradus::train {
namespace {

TEST(Units, Prefixes) {
  EXPECT_EQ(with_prefix(0), "0");
  EXPECT_EQ(with_prefix(0.25), "0.25");
  EXPECT_EQ(with_prefix(7), "7");
  EXPECT_EQ(with_prefix(812), "812");
  EXPECT_EQ(with_prefix(999.4), "999");
  EXPECT_EQ(with_prefix(999.6), "1.00k");
  EXPECT_EQ(with_prefix(45123), "45.1k");
  EXPECT_EQ(with_prefix(99960), "100k");
  EXPECT_EQ(with_prefix(-1.2e6), "-1.20M");
  EXPECT_EQ(with_prefix(989.5e12), "990T");
  EXPECT_EQ(with_prefix(INFINITY), "inf");
}

TEST(Units, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(812'000'000), "812 MB");
  EXPECT_EQ(bytes_text(1'400'000'000), "1.40 GB");
}

TEST(Units, Durations) {
  EXPECT_EQ(duration_text(-1), "0s");
  EXPECT_EQ(duration_text(41.4), "41s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(192), "3m12s");
  EXPECT_EQ(duration_text(2 * 3600 + 5 * 60 + 59), "2h05m");
  EXPECT_EQ(duration_text(76 * 3600), "3d04h");
  EXPECT_EQ(duration_text(NAN), "?");
  EXPECT_EQ(duration_text(INFINITY), "?");
}

TEST(Units, Commas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1664), "1,664");
  EXPECT_EQ(with_commas(4434720), "4,434,720");
  EXPECT_EQ(with_commas(-100), "-100");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
}

TEST(Units, ResidentBytesGrowWithWhatIsTouched) {
  const int64_t before = resident_bytes();
  std::vector<char> block(64 << 20, 1);
  const int64_t grown = resident_bytes() - before;
  EXPECT_GT(grown, 48 << 20) << int(block[123]);
  EXPECT_LT(grown, 128 << 20);
}

}  // namespace
}  // namespace gradus::train
