#include "parallel/send_schedule.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace gradus::parallel {
namespace {

using Times = std::vector<double>;

// GPT-2 124M on two H200: 13 buckets of a block or so and the table, which has its gradient at the very end.
const Times kUntilEnd = {55, 51, 47, 43, 38, 34, 30, 25, 21, 17, 12, 8, 4, 0};
const double kStep = 100;

TEST(SendSchedule, BucketsWaitAsLongAsTwiceTheirTrafficIsHidden) {
  EXPECT_EQ(buckets_to_hold(kUntilEnd, Times(14, 0.1), kStep), 12);  // 13 take 1.3 ms, of 4
  EXPECT_EQ(buckets_to_hold(kUntilEnd, Times(14, 0.2), kStep),
            11);                                                  // 13 take 2.6 ms: too long for 4
  EXPECT_EQ(buckets_to_hold(kUntilEnd, Times(14, 1), kStep), 8);  // 9 take 9 ms, of 21
  EXPECT_EQ(buckets_to_hold({40, 20, 10}, {1, 1, 3}, kStep), 2);  // just
  EXPECT_EQ(buckets_to_hold({40, 20, 10}, {1, 1, 3.01}, kStep), 1);
}

TEST(SendSchedule, TrafficThatBackwardDoesNotHideIsSentAtOnce) {
  EXPECT_EQ(buckets_to_hold(kUntilEnd, Times(14, 30), 500), 0);
  EXPECT_EQ(buckets_to_hold({0, 0, 0}, {1, 1, 1}, kStep), 0);  // nothing was ready before the end
  EXPECT_EQ(buckets_to_hold({-1, -2, -3}, {1, 1, 1}, kStep), 0);  // it was sent after it
}

TEST(SendSchedule, OneBucketWaitsForNone) {
  EXPECT_EQ(buckets_to_hold({30}, {1}, kStep), 0);
  EXPECT_EQ(buckets_to_hold({0}, {1}, kStep), 0);
}

// 1.4 ms of traffic, 4 ms before the end, then 50 ms without any, and the links sleep.
TEST(SendSchedule, InAShortStepNoLinkSleeps) {
  EXPECT_EQ(buckets_to_hold(kUntilEnd, Times(14, 0.1), 55.3), 0);
  EXPECT_EQ(buckets_to_hold(kUntilEnd, Times(14, 0.1), 55.5), 12);
  EXPECT_EQ(buckets_to_hold({8, 4, 1, 0}, Times(4, 0.1), 15), 0);
}

// Two buckets, on three ranks. The third is the slowest: the others wait for it in each bucket.
TEST(SendSchedule, AllRanksDecideByTheShortestTimes) {
  const std::vector<int64_t> of_all = {60000, 9000, 4000, 5000, 100000,  //
                                       60000, 8000, 4000, 5000, 100000,  //
                                       61000, 9500, 1000, 2900, 101000};
  EXPECT_EQ(common_buckets_to_hold(of_all, 2), 1);  // 2 (1 + 2.9) ≤ 8 ms
  const std::vector<int64_t> first_two(of_all.begin(), of_all.begin() + 10);
  EXPECT_EQ(common_buckets_to_hold(first_two, 2), 0);
}

// On the CPU, where a mark is the time of day.
TEST(SendSchedule, TheShortestOfTheTimedStepsCounts) {
  const auto pass = [](double ms) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
  };
  SendTimes times(kCpu, 2);
  for (int step = 0; step < 5; ++step) {
    EXPECT_FALSE(times.are_complete());
    const double slow = step == 2 ? 1 : 10;
    for (int bucket = 0; bucket < 2; ++bucket) {
      times.mark();
      pass(2);
      times.mark();
      pass(slow * (bucket == 0 ? 10 : 5));
      times.mark();
    }
    pass(10);
    times.mark_end_of_backward();
  }
  EXPECT_TRUE(times.are_complete());
  const std::vector<int64_t> us = times.shortest();
  ASSERT_EQ(us.size(), 5u);
  const double backward = 2 + 10 + 2 + 5 + 10;  // of the fast one
  const Times least = {backward, backward - 12, 10, 5, backward};
  const Times slow = {backward + 135, backward - 12 + 45, 100, 50, backward + 135};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_GE(double(us[i]), least[i] * 1e3) << i;
    EXPECT_LT(double(us[i]), slow[i] * 1e3) << i;
  }
}

}  // namespace
}  // namespace gradus::parallel
