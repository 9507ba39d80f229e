#include "sched/inverse_sqrt.h"

#include "tests/sched/digits.h"

namespace gradus::sched {
namespace {

TEST(ScheduleInverseSqrt, FallsByTheRoot) {
  Schedule lr = inverse_sqrt(0.1, 100, 0.001);
  EXPECT_EQ(lr(0), 0.1);
  EXPECT_TRUE(rounds_to(lr(100), "0.070710678"));
  EXPECT_TRUE(rounds_to(lr(300), "0.05"));
  EXPECT_TRUE(rounds_to(lr(9900), "0.01"));
  EXPECT_EQ(lr(1000000), 0.001);  // √(100/1000100) < 0.01: the floor
  EXPECT_TRUE(rounds_to(inverse_sqrt(0.1, 1)(999), "0.0031622777"));
}

TEST(ScheduleInverseSqrt, WrongArgumentsAreErrors) {
  EXPECT_THROW(inverse_sqrt(0.1, 0), Error);
  EXPECT_THROW(inverse_sqrt(-0.1, 10), Error);
  EXPECT_THROW(inverse_sqrt(0.1, 10, 0.2), Error);
}

}  // namespace
}  // namespace gradus::sched
