#pragma once
// What a thread owns on one GPU: for core/cuda.cpp and core/aside.cpp.
#include "core/cuda.h"
#include "core/device_failure.h"

#if defined(GRADUS_CUDA)
namespace gradus::cuda {

struct ThreadDevice {
  cudaStream_t stream = nullptr;
  cudaStream_t other = nullptr;            // the one aside or, inside an Aside, the main one
  bool aside = false;                      // is `stream` the one aside?
  DeviceError* error = nullptr;            // in host memory
  DeviceError* error_on_device = nullptr;  // the same record, as the device addresses it
  DeviceFailure* failure = nullptr;
};

/// This thread's; the GPU becomes the current one.
ThreadDevice& thread_device_of(Device device);

}  // namespace gradus::cuda
#endif
