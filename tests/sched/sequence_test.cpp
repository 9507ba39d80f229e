#include "sched/sequence.h"

#include "sched/cosine.h"
#include "sched/linear.h"
#include "sched/step.h"
#include "tests/sched/digits.h"

namespace gradus::sched {
namespace {

TEST(ScheduleSequence, LineThenCosine) {
  Schedule lr = sequence({linear(0.01, 0.1, 5), cosine_annealing(0.1, 0.001, 45)}, {5});
  EXPECT_TRUE(rounds_to(lr(0), "0.01"));
  EXPECT_TRUE(rounds_to(lr(1), "0.028"));
  EXPECT_TRUE(rounds_to(lr(4), "0.082"));
  EXPECT_TRUE(rounds_to(lr(5), "0.1"));
  EXPECT_TRUE(rounds_to(lr(6), "0.0998794205"));
  EXPECT_TRUE(rounds_to(lr(20), "0.07525"));
  EXPECT_TRUE(rounds_to(lr(27), "0.0522275251"));
  EXPECT_TRUE(rounds_to(lr(50), "0.001"));
}

TEST(ScheduleSequence, ThreeParts) {
  Schedule lr = sequence({linear(0.025, 0.1, 4), 0.1, exponential(0.1, 0.9)}, {4, 10});
  EXPECT_TRUE(rounds_to(lr(3), "0.08125"));
  EXPECT_TRUE(rounds_to(lr(9), "0.1"));
  EXPECT_TRUE(rounds_to(lr(10), "0.1"));
  EXPECT_TRUE(rounds_to(lr(11), "0.09"));
  EXPECT_TRUE(rounds_to(lr(20), "0.034867844"));
}

TEST(ScheduleSequence, WrongArgumentsAreErrors) {
  EXPECT_THROW(sequence({0.1, 0.2}, {}), Error);
  EXPECT_THROW(sequence({}, {}), Error);
  EXPECT_THROW(sequence({0.1, 0.2}, {0}), Error);
  EXPECT_THROW(sequence({0.1, 0.2, 0.3}, {5, 5}), Error);
  EXPECT_EQ(sequence({0.1}, {})(7), 0.1);
}

}  // namespace
}  // namespace gradus::sched
