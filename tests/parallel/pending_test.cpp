#include "parallel/pending.h"

#include <gtest/gtest.h>

#include "core/delay.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus::parallel {
namespace {

TEST(Pending, WorkIsDoneWhenItIsJoined) {
  for (Device device : test_devices()) {
    Tensor x = full({1000}, 1, DType::f32, device);
    Pending pending = start_aside({x}, [&] {
      delay(device, 10);
      fill_(x, 5);
    });
    pending.join();
    EXPECT_EQ((x + 1).at(999), 6);
    pending.join();  // again: nothing
  }
}

// Its memory would be given out again, and overwritten, while the work reads it.
TEST(Pending, HoldsWhatItUsesUntilThen) {
  for (Device device : test_devices()) {
    Tensor y = empty({1000}, DType::f32, device);
    Pending pending;
    {
      Tensor x = full({1000}, 4, DType::f32, device);
      pending = start_aside({x, y}, [&] {
        delay(device, 10);
        copy_(y, x);
      });
    }
    Tensor other = full({1000}, 9, DType::f32, device);
    pending.join();
    EXPECT_EQ(y.at(500), 4);
    EXPECT_EQ(other.at(500), 9);
  }
}

TEST(Pending, JoinsWhenItIsDestroyedOrReplaced) {
  for (Device device : test_devices()) {
    Tensor x = full({1000}, 1, DType::f32, device);
    const auto write = [&](double value) {
      return start_aside({x}, [&] {
        delay(device, 5);
        fill_(x, value);
      });
    };
    Pending pending = write(2);
    pending = write(3);
    { Pending last = std::move(pending); }
    EXPECT_EQ((x * 1).at(0), 3);
  }
}

}  // namespace
}  // namespace gradus::parallel
