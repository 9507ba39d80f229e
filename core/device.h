#pragma once
// Where a tensor's bytes are.
#include <cstdint>
#include <ostream>

// Marks a function that runs on the host and in CUDA kernels.
#if defined(__CUDACC__)
#define GRADUS_HD __host__ __device__
#else
#define GRADUS_HD
#endif

namespace gradus {

enum class DeviceType : uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;

  bool is_cuda() const { return type == DeviceType::cuda; }
  bool operator==(const Device&) const = default;
  friend std::ostream& operator<<(std::ostream& out, Device d) {
    return d.is_cuda() ? out << "cuda:" << int(d.index) : out << "cpu";
  }
};

inline constexpr Device kCpu{};
inline constexpr Device kCuda{DeviceType::cuda, 0};

}  // namespace gradus
