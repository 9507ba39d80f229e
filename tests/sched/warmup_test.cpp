#include "sched/warmup.h"

#include "sched/cosine.h"
#include "sched/inverse_sqrt.h"
#include "sched/wsd.h"
#include "tests/sched/digits.h"

namespace gradus::sched {
namespace {

TEST(ScheduleWarmup, ReadsAsASentence) {
  Schedule lr = warmup(6e-4, 2000, cosine(6e-4, 6e-5, 600000));
  EXPECT_EQ(lr(0), 0);
  EXPECT_TRUE(rounds_to(lr(1), "0.0000003"));
  EXPECT_TRUE(rounds_to(lr(1000), "0.0003"));
  EXPECT_EQ(lr(2000), 6e-4);
  EXPECT_TRUE(rounds_to(lr(302000), "0.00033"));
  EXPECT_EQ(lr(602000), 6e-5);
  EXPECT_EQ(lr(602001), 6e-5);
}

// The tables for learning rates in samples: init 0.01, max 0.1, min 0.001, w = 100, D = 1000.
TEST(ScheduleWarmup, O15_PeakAtTheEndOfWarmupFloorAtTheEndOfDecay) {
  Schedule line = warmup(0.1, 100, linear(0.1, 0.001, 900), 0.01);
  Schedule wave = warmup(0.1, 100, cosine(0.1, 0.001, 900), 0.01);
  Schedule root = warmup(0.1, 100, inverse_sqrt(0.1, 100, 0.001), 0.01);
  for (const Schedule& lr : {line, wave, root}) {
    EXPECT_EQ(lr(0), 0.01);
    EXPECT_TRUE(rounds_to(lr(1), "0.0109"));
    EXPECT_TRUE(rounds_to(lr(50), "0.055"));
    EXPECT_TRUE(rounds_to(lr(99), "0.0991"));
    EXPECT_EQ(lr(100), 0.1);
  }
  EXPECT_TRUE(rounds_to(line(101), "0.09989"));
  EXPECT_TRUE(rounds_to(line(550), "0.0505"));
  EXPECT_TRUE(rounds_to(wave(200), "0.097014785"));
  EXPECT_TRUE(rounds_to(wave(750), "0.018682013"));
  EXPECT_TRUE(rounds_to(root(101), "0.099503719"));
  EXPECT_TRUE(rounds_to(root(550), "0.042640143"));
  for (const Schedule& lr : {line, wave}) {
    EXPECT_EQ(lr(1000), 0.001);
    EXPECT_EQ(lr(5000), 0.001);
  }
}

TEST(ScheduleWarmup, NoneIsTheScheduleItself) {
  Schedule lr = warmup(0.1, 0, linear(0.1, 0, 10));
  EXPECT_EQ(lr(0), 0.1);
  EXPECT_EQ(lr(10), 0);
}

TEST(ScheduleWarmup, WrongArgumentsAreErrors) {
  EXPECT_THROW(warmup(0.1, -1, 0.1), Error);
  EXPECT_THROW(warmup(0.1, 10, 0.1, 0.2), Error);  // falls
  EXPECT_THROW(warmup(0.1, 10, 0.1, -0.1), Error);
  try {
    warmup(0.1, 10, cosine(0.2, 0, 100));
    FAIL() << "a jump passed";
  } catch (const Error& e) {
    std::string text = e.what();
    EXPECT_NE(text.find("rises to 0.1, but the schedule after it begins at 0.2"), text.npos)
        << text;
  }
}

}  // namespace
}  // namespace gradus::sched
