#include "train/device_batch.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "tests/devices.h"
#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

Batch counting_batch(int64_t rows, int64_t length, int32_t first) {
  Batch b;
  b.rows = rows, b.length = length;
  for (int32_t i = 0; i < rows * length; ++i) {
    b.inputs.push_back(first + i);
    b.targets.push_back(first + i + 1);
  }
  return b;
}

TEST(DeviceBatch, EachLoadReplacesTheValuesAndKeepsThePlace) {
  for (Device device : test_devices()) {
    DeviceBatch batch(device, 4, 3);
    const void* place = batch.inputs(0, 4).raw();
    for (int32_t first : {10, 50, 90}) {
      batch.load(counting_batch(4, 3, first));
      EXPECT_EQ(batch.inputs(0, 4).raw(), place);
      const Tensor inputs = to(batch.inputs(2, 2), kCpu), targets = to(batch.targets(2, 2), kCpu);
      EXPECT_EQ(inputs.shape(), Shape({2, 3}));
      for (int i = 0; i < 6; ++i) {
        EXPECT_EQ(inputs.data<int32_t>()[i], first + 6 + i) << device;
        EXPECT_EQ(targets.data<int32_t>()[i], first + 6 + i + 1) << device;
      }
    }
  }
}

TEST(DeviceBatch, ABatchOfAnotherSizeIsAnError) {
  DeviceBatch batch(kCpu, 4, 3);
  EXPECT_TRUE(
      holds(error_of([&] { batch.load(counting_batch(2, 3, 0)); }), {"2 windows of 3", "4 of 3"}));
}

}  // namespace
}  // namespace gradus::train
