#include "sched/wsd.h"

#include "sched/warmup.h"
#include "tests/sched/digits.h"

namespace gradus::sched {
namespace {

// init 0.01, max 0.1, min 0.001; warm-up 100, stable to 800, tail to 1000.
TEST(ScheduleWsd, FourTails) {
  const int64_t at[] = {801, 850, 900, 950, 999};
  const struct {
    Tail tail;
    const char* rates[5];
  } table[] = {
      {Tail::linear, {"0.099505", "0.07525", "0.0505", "0.02575", "0.001495"}},
      {Tail::cosine, {"0.099993893", "0.085501786", "0.0505", "0.015498214", "0.0010061067"}},
      {Tail::exponential,
       {"0.099314972", "0.068497490", "0.042007143", "0.019731504", "0.0013437031"}},
      {Tail::minus_sqrt, {"0.092999643", "0.0505", "0.029996429", "0.014263485", "0.0012478102"}},
  };
  for (const auto& row : table) {
    Schedule lr = warmup(0.1, 100, wsd(0.1, 0.001, 700, 200, row.tail), 0.01);
    for (int64_t n : {100, 101, 500, 800}) EXPECT_EQ(lr(n), 0.1) << row.tail;
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(rounds_to(lr(at[i]), row.rates[i])) << row.tail;
    for (int64_t n : {1000, 1001, 5000}) EXPECT_EQ(lr(n), 0.001) << row.tail;
  }
}

TEST(ScheduleWsd, WrongArgumentsAreErrors) {
  EXPECT_THROW(wsd(0.1, 0.2, 10, 10), Error);
  EXPECT_THROW(wsd(0.1, -0.2, 10, 10), Error);
  EXPECT_THROW(wsd(0.1, 0, -1, 10), Error);
  EXPECT_THROW(wsd(0.1, 0, 10, 0), Error);
  EXPECT_THROW(wsd(0.1, 0, 10, 10, Tail(7)), Error);
}

}  // namespace
}  // namespace gradus::sched
