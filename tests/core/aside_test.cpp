#include "core/aside.h"

#include <gtest/gtest.h>

#include "core/delay.h"
#include "core/memory_pool.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

TEST(Aside, WorkAsideComesAfterWhatTheStreamWasGivenBefore) {
  for (Device device : test_devices()) {
    Tensor x = full({1 << 20}, 1, DType::f32, device);
    delay(device, 20);
    fill_(x, 2);  // late
    Mark read;
    Tensor y = empty_like(x);
    {
      const Aside aside(device);
      copy_(y, x);
      read = Mark(device);
    }
    read.join();
    EXPECT_EQ(y.at(0), 2);
    EXPECT_EQ(y.at((1 << 20) - 1), 2);
  }
}

TEST(Aside, WhatComesAfterTheJoinWaits) {
  for (Device device : test_devices()) {
    Tensor x = full({1 << 20}, 1, DType::f32, device);
    Mark written;
    {
      const Aside aside(device);
      delay(device, 20);
      fill_(x, 3);
      written = Mark(device);
    }
    written.join();
    EXPECT_EQ((x * 2).at(12345), 6);
  }
}

// Note [memory aside]: a block freed aside is not given to the stream, whose work is not ordered behind it.
TEST(Aside, MemoryFreedAsideStaysAside) {
  for (Device device : test_devices()) {
    if (!device.is_cuda()) continue;
    void* block = nullptr;
    {
      const Aside aside(device);
      block = empty({12345}, DType::f32, device).raw();
    }
    EXPECT_NE(empty({12345}, DType::f32, device).raw(), block);
    const Aside again(device);
    EXPECT_EQ(empty({12345}, DType::f32, device).raw(), block);
  }
}

TEST(Aside, OneInsideOfAnotherIsAnError) {
  for (Device device : test_devices()) {
    const Aside aside(device);
    if (device.is_cuda())
      EXPECT_THROW(Aside{device}, Error);
    else
      EXPECT_NO_THROW(Aside{device});
  }
}

TEST(Aside, AnErrorLeavesTheThreadOnItsStream) {
  for (Device device : test_devices()) {
    try {
      const Aside aside(device);
      fail("meanwhile");
    } catch (const Error&) {
    }
    EXPECT_FALSE(cuda::is_aside(device));
  }
}

TEST(Aside, AMarkOfLongAgoIsJoinedAlready) {
  EXPECT_FALSE(bool(Mark()));
  Mark().join();
  EXPECT_FALSE(bool(Mark(kCpu)));
}

}  // namespace
}  // namespace gradus
