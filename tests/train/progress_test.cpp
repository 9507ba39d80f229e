#include "train/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <sstream>

#include "train/disk.h"

namespace gradus::train {
namespace {

const Progress kExample{1200, 5000, 1.83421, 5.71e-4, 0.4142, 48312, {}, 812'000'000, 250};

TEST(Progress, TheLineInFull) {
  EXPECT_EQ(progress_line(kExample, 200),
            "step 1200/5000  loss 1.8342  lr 5.71e-04  norm 0.41  48.3k tok/s  MFU n/a  812 MB  "
            "4m10s left");
}

TEST(Progress, T3_ThePeakStandsBesideTheUtilisation) {
  Progress p = kExample;
  p.mfu = {0.4123, 0.4419, 989.5e12};
  EXPECT_NE(progress_line(p, 200).find("MFU 41.2% causal, 44.2% full, of 990T"), std::string::npos);
}

TEST(Progress, TheLossScaleStandsBesideTheNorm) {
  Progress p = kExample;
  p.loss_scale = 65536;
  EXPECT_NE(progress_line(p, 200).find("norm 0.41  scale 65536  48.3k"), std::string::npos);
}

TEST(Progress, NeverWiderThanAsked) {
  Progress p = kExample;
  for (double value : {1.0, double(NAN), -double(INFINITY), 1e30}) {
    p.loss = p.lr = p.grad_norm = p.tokens_per_second = p.seconds_left = value;
    for (int width = 0; width <= 200; ++width)
      ASSERT_LE(progress_line(p, width).size(), size_t(width));
  }
}

TEST(Progress, WhatMattersLeastIsLeftOutFirst) {
  EXPECT_EQ(progress_line(kExample, 80),
            "step 1200/5000  loss 1.8342  lr 5.71e-04  norm 0.41  48.3k tok/s  4m10s left");
  EXPECT_EQ(progress_line(kExample, 40), "step 1200/5000  loss 1.8342  4m10s left");
  EXPECT_EQ(progress_line(kExample, 20), "step 1200/5000");
  EXPECT_EQ(progress_line(kExample, 7), "step 12");
}

Progress at_step(int64_t step) {
  Progress p = kExample;
  p.step = step;
  return p;
}

TEST(Progress, ALogGetsALineEveryFiveSecondsAndTheLastOne) {
  std::ostringstream out;
  ProgressDisplay display(out, [] { return 0; });
  for (int64_t step = 4990; step <= 5000; ++step) display.show(at_step(step), double(step));
  std::string expected;
  for (int64_t step : {4990, 4995, 5000}) expected += progress_line(at_step(step), 1000) + "\n";
  EXPECT_EQ(out.str(), expected);
}

TEST(Progress, TheLastStepIsShownHoweverSoon) {
  std::ostringstream out;
  ProgressDisplay display(out, [] { return 0; });
  display.show(at_step(4999), 0);
  display.show(at_step(5000), 0.001);
  EXPECT_NE(out.str().find("step 5000/5000"), std::string::npos);
}

TEST(Progress, ATerminalGetsOneLineInPlace) {
  std::ostringstream out;
  {
    ProgressDisplay display(out, [] { return 41; });
    display.show(at_step(1), 0);
    display.show(at_step(2), 0.05);  // too soon
    display.show(at_step(3), 0.2);
    display.message("saved");
    display.show(at_step(4), 0.4);
  }
  EXPECT_EQ(out.str(),
            "\rstep 1/5000  loss 1.8342  4m10s left\x1b[K"
            "\rstep 3/5000  loss 1.8342  4m10s left\x1b[K"
            "\r\x1b[Ksaved\n"
            "\rstep 4/5000  loss 1.8342  4m10s left\x1b[K\n");
}

TEST(Progress, TheWidthOfATerminalIsAsked) {
  int terminal = -1, keyboard = -1;
  struct winsize size {};
  size.ws_col = 123, size.ws_row = 10;
  if (::openpty(&keyboard, &terminal, nullptr, nullptr, &size) != 0)
    GTEST_SKIP() << "no pseudo-terminal on this machine";
  const Descriptor a(terminal), b(keyboard);
  EXPECT_EQ(terminal_width(terminal), 123);
  size.ws_col = 0;
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(terminal_width(terminal), 80);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor c(ends[0]), d(ends[1]);
  EXPECT_EQ(terminal_width(ends[1]), 0);
}

TEST(Pace, SteadyStepsGiveTheirSpeed) {
  Pace pace(100);
  EXPECT_EQ(pace.tokens_per_second(), 0);
  EXPECT_TRUE(std::isnan(pace.seconds_left(10)));
  for (int i = 1; i <= 5; ++i) pace.step(0.5, 1000, 100 + 0.5 * i);
  EXPECT_DOUBLE_EQ(pace.tokens_per_second(), 2000);
  EXPECT_DOUBLE_EQ(pace.seconds_left(10), 5);
}

// 20 slow steps, then 7 of double speed: 0.9⁷ = 0.478 of the weight is still with the slow ones.
TEST(Pace, RecentStepsCountMostAndPausesOnlyForTheTimeLeft) {
  Pace pace(0);
  for (int i = 1; i <= 20; ++i) pace.step(1, 1000, i);
  EXPECT_NEAR(pace.tokens_per_second(), 1000, 1e-9);
  for (int i = 1; i <= 7; ++i) pace.step(0.5, 1000, 30 + 0.5 * i);  // after a pause of 10 s
  EXPECT_GT(pace.tokens_per_second(), 1300);
  EXPECT_LT(pace.tokens_per_second(), 1700);
  EXPECT_DOUBLE_EQ(pace.seconds_left(27), 33.5);  // 27 steps took 33.5 s
}

}  // namespace
}  // namespace gradus::train
