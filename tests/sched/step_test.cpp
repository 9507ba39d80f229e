#include "sched/step.h"

#include "tests/sched/digits.h"

namespace gradus::sched {
namespace {

TEST(ScheduleStep, FallsAtEveryTenthStep) {
  Schedule lr = step(0.1, 10, 0.5);
  EXPECT_TRUE(rounds_to(lr(0), "0.1"));
  EXPECT_TRUE(rounds_to(lr(9), "0.1"));
  EXPECT_TRUE(rounds_to(lr(10), "0.05"));
  EXPECT_TRUE(rounds_to(lr(20), "0.025"));
  EXPECT_TRUE(rounds_to(lr(35), "0.0125"));
}

TEST(ScheduleMultiStep, FallsAtTheMilestones) {
  Schedule lr = multi_step(0.1, {5, 20, 21}, 0.1);
  EXPECT_TRUE(rounds_to(lr(4), "0.1"));
  EXPECT_TRUE(rounds_to(lr(5), "0.01"));
  EXPECT_TRUE(rounds_to(lr(19), "0.01"));
  EXPECT_TRUE(rounds_to(lr(20), "0.001"));
  EXPECT_TRUE(rounds_to(lr(21), "0.0001"));
  EXPECT_TRUE(rounds_to(multi_step(0.1, {3, 3}, 0.5)(3), "0.025"));  // twice at once
  EXPECT_EQ(multi_step(0.1, {}, 0.5)(1000), 0.1);
}

TEST(ScheduleExponential, FallsAtEveryStep) {
  Schedule lr = exponential(0.1, 0.9);
  EXPECT_TRUE(rounds_to(lr(1), "0.09"));
  EXPECT_TRUE(rounds_to(lr(2), "0.081"));
  EXPECT_TRUE(rounds_to(lr(10), "0.034867844"));
  EXPECT_TRUE(rounds_to(lr(50), "0.000515377521"));
}

TEST(ScheduleStep, WrongArgumentsAreErrors) {
  EXPECT_THROW(step(-0.1, 10, 0.5), Error);
  EXPECT_THROW(step(0.1, 0, 0.5), Error);
  EXPECT_THROW(step(0.1, 10, 0), Error);
  EXPECT_THROW(step(0.1, 10, NAN), Error);
  EXPECT_THROW(multi_step(0.1, {20, 5}, 0.1), Error);
  EXPECT_THROW(multi_step(0.1, {-1}, 0.1), Error);
  EXPECT_THROW(exponential(NAN, 0.9), Error);
  EXPECT_THROW(exponential(INFINITY, 0.9), Error);
  EXPECT_THROW(exponential(0.1, -0.9), Error);
}

}  // namespace
}  // namespace gradus::sched
