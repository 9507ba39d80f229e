#include "sched/cosine.h"

#include "tests/sched/digits.h"

namespace gradus::sched {
namespace {

TEST(ScheduleCosine, StaysAtItsEnd) {
  Schedule lr = cosine(0.1, 0.001, 50);
  EXPECT_TRUE(rounds_to(lr(1), "0.0999023231"));
  EXPECT_TRUE(rounds_to(lr(10), "0.0905463412"));
  EXPECT_TRUE(rounds_to(lr(25), "0.0505"));
  EXPECT_EQ(lr(0), 0.1);
  for (int64_t n : {int64_t(50), int64_t(51), int64_t(100), INT64_MAX}) EXPECT_EQ(lr(n), 0.001);
}

TEST(ScheduleCosineAnnealing, RisesAgain) {
  Schedule lr = cosine_annealing(0.1, 0.001, 50);
  EXPECT_TRUE(rounds_to(lr(1), "0.0999023231"));
  EXPECT_TRUE(rounds_to(lr(10), "0.0905463412"));
  EXPECT_TRUE(rounds_to(lr(25), "0.0505"));
  EXPECT_TRUE(rounds_to(lr(40), "0.0104536588"));
  EXPECT_EQ(lr(50), 0.001);
  EXPECT_TRUE(rounds_to(lr(60), "0.0104536588"));
  EXPECT_EQ(lr(100), 0.1);
  // Far out it is still exactly periodic: the angle is reduced before the cosine is taken.
  for (int64_t n = 0; n < 100; ++n) EXPECT_EQ(lr(n), lr(n + 100 * 1000000000000));
}

TEST(ScheduleCosineRestarts, CyclesGrow) {
  Schedule lr = cosine_restarts(0.1, 0.001, 10, 2);
  EXPECT_TRUE(rounds_to(lr(5), "0.0505"));
  EXPECT_TRUE(rounds_to(lr(9), "0.00342270244"));
  EXPECT_EQ(lr(10), 0.1);
  EXPECT_TRUE(rounds_to(lr(20), "0.0505"));
  EXPECT_TRUE(rounds_to(lr(25), "0.0154982143"));
  EXPECT_TRUE(rounds_to(lr(29), "0.00160942714"));
  EXPECT_EQ(lr(30), 0.1);
  EXPECT_TRUE(rounds_to(lr(50), "0.0505"));
  // Cycle i begins at 10 (2ⁱ − 1): the step before is its predecessor's last.
  for (int i = 1; i < 59; ++i) {
    int64_t begin = 10 * ((int64_t(1) << i) - 1);
    EXPECT_EQ(lr(begin), 0.1) << i;
    EXPECT_LT(lr(begin - 1), 0.004) << i;
  }
  EXPECT_GE(lr(INT64_MAX), 0.001);
}

TEST(ScheduleCosineRestarts, CyclesOfOneLength) {
  Schedule lr = cosine_restarts(0.1, 0.001, 10);
  EXPECT_EQ(lr(20), 0.1);
  EXPECT_TRUE(rounds_to(lr(25), "0.0505"));
  EXPECT_EQ(lr(10000000000000), 0.1);
}

TEST(ScheduleCosine, WrongArgumentsAreErrors) {
  EXPECT_THROW(cosine(0.1, 0, 0), Error);
  EXPECT_THROW(cosine(0.1, -0.1, 10), Error);
  EXPECT_THROW(cosine(NAN, 0, 10), Error);
  EXPECT_THROW(cosine_annealing(0.1, 0.2, 10), Error);
  EXPECT_THROW(cosine_annealing(0.1, 0, -1), Error);
  EXPECT_THROW(cosine_restarts(0.1, 0.2, 10), Error);
  EXPECT_THROW(cosine_restarts(0.1, 0, 0), Error);
  EXPECT_THROW(cosine_restarts(0.1, 0, 10, 0), Error);
}

}  // namespace
}  // namespace gradus::sched
