#include "train/permutation.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/check.h"
#include "core/random.h"

namespace gradus::train {
namespace {

TEST(Permutation, IsABijectionForEverySizeAndKey) {
  for (uint64_t size = 1; size <= 300; ++size)
    for (uint64_t key : {0ull, 1ull, 0xfeedull}) {
      std::vector<int> hits(size, 0);
      for (uint64_t i = 0; i < size; ++i) ++hits.at(permute_index(i, size, key));
      for (int h : hits) ASSERT_EQ(h, 1) << "size " << size << ", key " << key;
    }
}

TEST(Permutation, IsABijectionAroundAPowerOfFour) {
  for (uint64_t size : {65535u, 65536u, 65537u}) {
    std::vector<bool> hit(size, false);
    for (uint64_t i = 0; i < size; ++i) hit.at(permute_index(i, size, 7)) = true;
    for (bool h : hit) ASSERT_TRUE(h);
  }
}

TEST(Permutation, HugeSizesStayInside) {
  const uint64_t size = (uint64_t(1) << 62) + 12345;
  uint64_t upper_half = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t image = permute_index(i, size, 3);
    ASSERT_LT(image, size);
    upper_half += image > size / 2;
  }
  EXPECT_NEAR(double(upper_half), 500, 80);  // 5 σ of a fair coin: σ = √1000 / 2 = 15.8
}

// Over many keys each index goes to each place equally often. χ² with 9 degrees of freedom exceeds
// 27.9 once in a thousand draws; the keys are fixed, so this either holds or not.
TEST(Permutation, EveryIndexGoesEverywhereEquallyOften) {
  constexpr int kSize = 10, kKeys = 50000;
  for (uint64_t index : {0u, 4u, 9u}) {
    std::vector<double> count(kSize, 0);
    for (uint64_t key = 0; key < kKeys; ++key) ++count[permute_index(index, kSize, mix(key))];
    double chi2 = 0, expected = double(kKeys) / kSize;
    for (double c : count) chi2 += (c - expected) * (c - expected) / expected;
    EXPECT_LT(chi2, 27.9) << "index " << index;
  }
}

// Neighbours must not stay neighbours: of n − 1 adjacent pairs a random order keeps 2 on average.
TEST(Permutation, NeighboursAreSeparated) {
  constexpr uint64_t kSize = 10000;
  int kept = 0;
  for (uint64_t i = 0; i + 1 < kSize; ++i) {
    const auto a = int64_t(permute_index(i, kSize, 5)), b = int64_t(permute_index(i + 1, kSize, 5));
    kept += std::abs(a - b) == 1;
  }
  EXPECT_LE(kept, 9);  // Poisson(2): more than 9 has probability 5e-5
}

TEST(Permutation, AnIndexOutsideIsAnError) {
  EXPECT_THROW(permute_index(5, 5, 0), Error);
  EXPECT_THROW(permute_index(0, 0, 0), Error);
}

}  // namespace
}  // namespace gradus::train
