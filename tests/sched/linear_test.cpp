#include "sched/linear.h"

#include "tests/sched/digits.h"

namespace gradus::sched {
namespace {

TEST(ScheduleLinear, FromAThirdInFiveSteps) {
  Schedule lr = linear(0.1 / 3, 0.1, 5);
  EXPECT_TRUE(rounds_to(lr(0), "0.0333333333"));
  EXPECT_TRUE(rounds_to(lr(1), "0.0466666667"));
  EXPECT_TRUE(rounds_to(lr(4), "0.0866666667"));
  EXPECT_EQ(lr(5), 0.1);
  EXPECT_EQ(lr(6), 0.1);
}

TEST(ScheduleLinear, Falls) {
  Schedule lr = linear(0.3, 0.1, 4);
  EXPECT_EQ(lr(0), 0.3);
  EXPECT_NEAR(lr(1), 0.25, 1e-16);
  EXPECT_NEAR(lr(3), 0.15, 1e-16);
  EXPECT_EQ(lr(4), 0.1);
  EXPECT_EQ(lr(INT64_MAX), 0.1);
}

// 2²⁴ + 1 is no float, 2⁵³ − 1 a double: every count up to it is told from its neighbour.
TEST(ScheduleLinear, O18_CountsAre64BitsWide) {
  Schedule lr = linear(0, 1, int64_t(1) << 25);
  EXPECT_EQ(lr(16777217) - lr(16777216), 0x1p-25);
  Schedule slow = linear(0, 1, int64_t(1) << 53);
  int64_t n = (int64_t(1) << 52) - 1;
  EXPECT_EQ(slow(n + 1) - slow(n), 0x1p-53);
}

TEST(ScheduleLinear, WrongArgumentsAreErrors) {
  EXPECT_THROW(linear(-1, 1, 10), Error);
  EXPECT_THROW(linear(1, -1, 10), Error);
  EXPECT_THROW(linear(1, 0, 0), Error);
}

}  // namespace
}  // namespace gradus::sched
