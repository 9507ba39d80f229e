#include "core/time_mark.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "core/aside.h"
#include "core/cuda.h"
#include "core/delay.h"

namespace gradus {
namespace {

void work(Device device, double ms) {
  if (device.is_cuda()) return delay(device, ms);
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

TEST(TimeMark, SaysHowLongWorkTook) {
  for (Device device : {kCpu, kCuda}) {
    if (device.is_cuda() && cuda_device_count() == 0) continue;
    const TimeMark begun(device);
    work(device, 20);
    const TimeMark done(device);
    work(device, 10);
    done.wait();
    EXPECT_GE(done.since(begun), 20);
    EXPECT_LT(done.since(begun), 1000);
    EXPECT_EQ(begun.since(done), -done.since(begun));
  }
}

TEST(TimeMark, IsOnTheStreamThatTheThreadIsAt) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const TimeMark begun(kCuda);
  Mark joined;
  std::optional<TimeMark> aside_done;
  {
    const Aside aside(kCuda);
    delay(kCuda, 30);
    aside_done.emplace(kCuda);
    joined = Mark(kCuda);
  }
  const TimeMark beside(kCuda);
  joined.join();
  const TimeMark after(kCuda);
  after.wait();
  EXPECT_GE(aside_done->since(begun), 30);
  EXPECT_LT(beside.since(begun), 25);
  EXPECT_GE(after.since(begun), 30);
}

}  // namespace
}  // namespace gradus
