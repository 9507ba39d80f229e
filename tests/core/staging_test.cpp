#include "core/staging.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

TEST(Staging, CopiesBothWaysInTheOrderOfTheStream) {
  for (Device device : test_devices()) {
    constexpr int64_t kCount = 100'000;
    const Tensor x = zeros({kCount}, DType::f32, device);
    Staging in(device, kCount * sizeof(float)), out(device, kCount * sizeof(float));
    for (int round = 0; round < 3; ++round) {
      auto* values = static_cast<float*>(in.wait());  // the copy of the round before is done
      for (int64_t i = 0; i < kCount; ++i) values[i] = float(round * kCount + i);
      in.copy_to(x.raw());
      const Tensor doubled = x + x;
      out.copy_from(doubled.raw());
      const auto* read = static_cast<const float*>(out.wait());
      for (int64_t i = 0; i < kCount; i += 999)
        ASSERT_EQ(read[i], 2 * float(round * kCount + i)) << device;
    }
  }
}

}  // namespace
}  // namespace gradus
