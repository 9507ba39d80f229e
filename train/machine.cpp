#include "train/machine.h"

#include <omp.h>

#include <cstdio>
#include <fstream>

#include "core/allocator.h"
#include "core/cuda.h"
#include "train/units.h"

namespace gradus::train {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const size_t colon = line.find(": "); line.starts_with("model name") && colon != line.npos)
      return line.substr(colon + 2);
  return "CPU";
}

}  // namespace

Device choose_device(const std::string& name) {
  if (name == "auto") return cuda_device_count() > 0 ? kCuda : kCpu;
  if (name == "cpu") return kCpu;
  int index = 0, read = 0;
  const bool numbered = std::sscanf(name.c_str(), "cuda:%d%n", &index, &read) == 1 &&
                        size_t(read) == name.size() && index >= 0 && index < 128;
  check(name == "cuda" || numbered, "--device can be auto, cpu, cuda or cuda:N; got '", name, "'");
  const Device device{DeviceType::cuda, int8_t(index)};
  check_device(device);
  return device;
}

void use_threads(int threads) {
  check(threads >= 0 && threads <= 4096, "--threads must be positive, got ", threads);
  omp_set_num_threads(threads > 0 ? threads : omp_get_num_procs());
}

std::string machine_name(Device device) {
  if (device.is_cuda()) return device_name(device);
  const int threads = omp_get_max_threads();
  return processor_name() + ", " + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads");
}

void check_dtype(Device device, DType dtype) {
  check(dtype != DType::bf16 || !device.is_cuda() || has_bf16(device), "", device, " (",
        device.is_cuda() ? device_name(device) : "", ") has no bf16 arithmetic; use --dtype f16, with a loss scale, or f32");
}

std::optional<double> machine_peak(Device device, DType dtype) {
  if (!device.is_cuda()) return std::nullopt;
  return peak_flops(device_name(device), size_of(dtype) == 2 ? Precision::bf16 : Precision::f32);
}

int64_t memory_in_use(Device device) {
  return device.is_cuda() ? memory_stats(device).live : resident_bytes();
}

}  // namespace gradus::train
