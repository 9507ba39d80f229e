// What holds for every schedule.
#include "sched/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "sched/sched.h"

namespace gradus::sched {
namespace {

struct Case {
  std::string name;
  Schedule lr;
  double max, min;  // bounds of the rate
  double jump;      // the largest change from one step to the next
};

// Between jumps a schedule moves by at most its slope: π/2 (max − min)/N for half a cosine.
const std::vector<Case> kCases = {
    {"constant", constant(0.1), 0.1, 0.1, 0},
    {"number", 0.1, 0.1, 0.1, 0},
    {"linear", linear(0.1, 0.02, 400), 0.1, 0.02, 0.08 / 400},
    {"cosine", cosine(0.1, 0.01, 400), 0.1, 0.01, 1.571 * 0.09 / 400},
    {"cosine_annealing", cosine_annealing(0.1, 0.01, 100), 0.1, 0.01, 1.571 * 0.09 / 100},
    {"cosine_restarts", cosine_restarts(0.1, 0.01, 50, 2), 0.1, 0.01, 0.09},
    {"inverse_sqrt", inverse_sqrt(0.1, 100, 0.01), 0.1, 0.01, 0.1 / 200},
    {"wsd linear", wsd(0.1, 0.01, 200, 200), 0.1, 0.01, 0.09 / 200},
    {"wsd cosine", wsd(0.1, 0.01, 200, 200, Tail::cosine), 0.1, 0.01, 1.571 * 0.09 / 200},
    {"wsd exponential", wsd(0.1, 0.01, 200, 200, Tail::exponential), 0.1, 0.01, 1.387 * 0.09 / 200},
    {"wsd minus_sqrt", wsd(0.1, 0.01, 200, 200, Tail::minus_sqrt), 0.1, 0.01, 0.09 / 14.1},
    {"step", step(0.1, 100, 0.5), 0.1, 0, 0.05},
    {"multi_step", multi_step(0.1, {100, 300}, 0.1), 0.1, 0.0009, 0.09},
    {"exponential", exponential(0.1, 0.99), 0.1, 0, 0.001},
    {"warmup", warmup(0.1, 100, cosine(0.1, 0.01, 400)), 0.1, 0, 0.001},
    {"sequence", sequence({linear(0.05, 0.1, 100), 0.1, linear(0.1, 0, 100)}, {100, 200}), 0.1, 0,
     0.001},
};

TEST(Schedules, StayWithinTheirBounds) {
  for (const Case& c : kCases)
    for (int64_t n = 0; n < 1000; ++n) {
      EXPECT_GE(c.lr(n), c.min) << c.name << " at " << n;
      EXPECT_LE(c.lr(n), c.max) << c.name << " at " << n;
    }
}

TEST(Schedules, O15_MoveContinuously) {
  for (const Case& c : kCases)
    for (int64_t n = 0; n < 1000; ++n)
      EXPECT_LE(std::abs(c.lr(n + 1) - c.lr(n)), c.jump * (1 + 1e-12) + 1e-17)
          << c.name << ' ' << n;
}

// A resumed run is a copy that was never asked for the steps before.
TEST(Schedules, O16_ArePureFunctions) {
  std::vector<int64_t> order(1000);
  for (size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
  for (const Case& c : kCases) {
    std::vector<double> rates(1000);
    for (int64_t n = 0; n < 1000; ++n) rates[n] = c.lr(n);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    Schedule copy = c.lr;
    for (int64_t n : order) EXPECT_EQ(copy(n), rates[n]) << c.name << " at " << n;
  }
}

TEST(Schedules, AreDefinedForEveryCount) {
  for (const Case& c : kCases) {
    for (int64_t n : {int64_t(1) << 24, (int64_t(1) << 24) + 1, int64_t(1) << 53, INT64_MAX}) {
      EXPECT_GE(c.lr(n), c.min) << c.name << " at " << n;
      EXPECT_LE(c.lr(n), c.max) << c.name << " at " << n;
    }
    EXPECT_THROW(c.lr(-1), Error) << c.name;
  }
}

TEST(Schedules, AnyFunctionIsOne) {
  Schedule lr = [](int64_t n) { return n < 3 ? 0.5 : 0.25; };
  EXPECT_EQ(lr(2), 0.5);
  EXPECT_EQ(lr(3), 0.25);
  EXPECT_THROW(Schedule(-0.1), Error);
  EXPECT_THROW(Schedule(double(NAN)), Error);
}

}  // namespace
}  // namespace gradus::sched
