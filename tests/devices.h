#pragma once
// Where a test runs: on the CPU, and on a GPU where there is one.
#include <vector>

#include "core/cuda.h"

namespace gradus {

inline std::vector<Device> test_devices() {
  std::vector<Device> devices{kCpu};
  if (cuda_device_count() > 0) devices.push_back(kCuda);
  return devices;
}

inline constexpr DType kFloatingTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
inline constexpr DType kAllTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                      DType::i32, DType::i64, DType::u8};

}  // namespace gradus
