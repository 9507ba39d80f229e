// Sums with an operand that is repeated over the rows of the other. On a GPU whole packs of 16 bytes have
// a way of their own (ops/repeated.h), everything else walks.
#include <gtest/gtest.h>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

/// x_i = i mod `period` less 3: small whole numbers, which every type holds exactly, and so their sums.
Tensor counted(const Shape& shape, int period, DType dtype, Device device) {
  Tensor x = empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double(i % period) - 3);
  return to(x, device);
}

void expect_sums(const Shape& left, const Shape& right, DType dtype, Device device) {
  SCOPED_TRACE(testing::Message() << device << " " << dtype << " " << left << " + " << right);
  const Tensor a = counted(left, 11, dtype, device), b = counted(right, 7, dtype, device);
  const std::vector<double> sum = (a + b).to_vector();
  const int64_t n = b.numel();
  ASSERT_EQ(int64_t(sum.size()), a.numel());
  for (int64_t i = 0; i < a.numel(); ++i)
    ASSERT_EQ(sum[size_t(i)], double(i % 11) - 3 + double(i % n % 7) - 3) << "element " << i;
}

TEST(Add, AnOperandIsRepeatedOverTheRowsOfTheOther) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      expect_sums({5, 3, 16}, {3, 16}, dtype, device);
      expect_sums({5, 3, 16}, {16}, dtype, device);
      expect_sums({4, 1, 24}, {1, 24}, dtype, device);
      expect_sums({3000, 8}, {8}, dtype, device);  // few packs, many rows
      expect_sums({3, 2, 1160}, {2, 1160}, dtype, device);
      expect_sums({7, 5}, {5}, dtype, device);  // no whole packs
    }
}

// The operand on the left is repeated, or the repetition is not over the leading dimension.
TEST(Add, OtherBroadcastsWalk) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      const Tensor a = counted({2, 3, 16}, 11, dtype, device),
                   row = counted({16}, 7, dtype, device);
      EXPECT_EQ((row + a).to_vector(), (a + row).to_vector());
      const Tensor middle = counted({2, 1, 16}, 7, dtype, device);
      const std::vector<double> sum = (a + middle).to_vector();
      for (int64_t i = 0; i < a.numel(); ++i)
        ASSERT_EQ(sum[size_t(i)], double(i % 11) - 3 + double((i / 48 * 16 + i % 16) % 7) - 3)
            << device << " " << dtype << " element " << i;
    }
}

}  // namespace
}  // namespace gradus
