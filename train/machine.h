#pragma once
// What a run computes on.
#include <optional>
#include <string>

#include "core/device.h"
#include "core/dtype.h"
#include "train/flops.h"

namespace gradus::train {

inline constexpr const char* kDeviceHelp =
    "cpu, cuda or cuda:N (default: auto, the GPU if there is one)";

/// The device of a name: auto, cpu, cuda, cuda:1. Error when there is no such device here.
Device choose_device(const std::string& name);

/// CPU threads of this process from here on; 0: one for each core that it may use.
void use_threads(int threads);

/// "NVIDIA H200", "AMD EPYC 9R14, 2 threads".
std::string machine_name(Device device);

/// Error, with a remedy, when the device has no arithmetic of that type.
void check_dtype(Device device, DType dtype);

/// Peak FLOP/s of the matrix products of a run, if it is known.
std::optional<double> machine_peak(Device device, DType dtype);

/// Bytes that tensors hold on a GPU, that the process holds on the CPU.
int64_t memory_in_use(Device device);

}  // namespace gradus::train
