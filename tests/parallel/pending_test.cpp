#include "parallel/pending.h"

#include <gtest/gtest.h>

#include <functional>

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

// Note [late writes]: whoever reads what is written aside waits for it, through whichever view.
TEST(WriteAside, IsWaitedForByWhoeverReadsIt) {
  using Reader = std::function<double(const Tensor&)>;
  const Reader readers[] = {[](const Tensor& x) { return (x + 1).at(1500) - 1; },
                            [](const Tensor& x) { return x.at(1500); },
                            [](const Tensor& x) { return x.to_vector()[1500]; },
                            [](const Tensor& x) { return clone(x.detach()).at(1500); },
                            [](const Tensor& x) { return to(x, kCpu).at(1500); },
                            [](const Tensor& x) { return x.alias({2}, {500}, 1000).at(1); }};
  for (Device device : test_devices())
    for (const Reader& read : readers) {
      const Tensor x = full({2000}, 1, DType::f32, device), view = x.alias({2000}, {1}, 0);
      for (const Tensor& through : {x, view}) {
        int joined = 0;
        write_aside(
            x,
            [&] {
              delay(device, 10);
              fill_(x, 5);
            },
            [&] { ++joined; });
        EXPECT_EQ(read(through), 5);
        EXPECT_EQ(read(x), 5);
        EXPECT_EQ(joined, 1);
        fill_(x, 1);
      }
    }
}

TEST(WriteAside, IsWaitedForByNobodyElse) {
  for (Device device : test_devices()) {
    const Tensor x = full({3000}, 1, DType::f32, device);
    const auto third = [&](int64_t k) { return x.alias({1000}, {1}, 1000 * k); };
    std::string joined;
    for (int k : {0, 2})
      write_aside(
          third(k), [&] { fill_(third(k), 5); }, [&, k] { joined += std::to_string(k); });
    EXPECT_EQ(third(1).at(999), 1);
    EXPECT_EQ(joined, "");
    EXPECT_EQ(third(2).at(0), 5);
    EXPECT_EQ(joined, "2");
    fill_(third(0), 7);  // one that writes is not overtaken
    EXPECT_EQ(joined, "20");
    EXPECT_EQ((x * 1).at(999), 7);
  }
}

// Its memory would be given out again, and used, while the work writes to it.
TEST(WriteAside, IsWaitedForWhenItsMemoryIsFreed) {
  for (Device device : test_devices()) {
    bool joined = false;
    {
      const Tensor x = full({1000}, 1, DType::f32, device);
      write_aside(
          x,
          [&] {
            delay(device, 10);
            fill_(x, 5);
          },
          [&] { joined = true; });
    }
    EXPECT_TRUE(joined);
    const Tensor other = full({1000}, 9, DType::f32, device);
    EXPECT_EQ(other.at(500), 9);
  }
}

}  // namespace
}  // namespace gradus::parallel
