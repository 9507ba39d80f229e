#pragma once
// When steps end, and what the GPU was doing meanwhile.
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "core/cuda.h"
#include "core/time_mark.h"

namespace gradus::bench {

/// A mark behind each step.
class StepClock {
 public:
  explicit StepClock(Device device) : device_(device) {}

  void mark() { marks_.emplace_back(device_); }

  /// Milliseconds from each mark to the next. Waits for the device.
  std::vector<double> intervals() const {
    std::vector<double> list;
    synchronize(device_);
    for (size_t i = 1; i < marks_.size(); ++i) list.push_back(marks_[i].since(marks_[i - 1]));
    return list;
  }

 private:
  Device device_;
  std::vector<TimeMark> marks_;
};

/// SM clock in MHz, power in W, temperature in °C of the first GPU, as nvidia-smi says them now; empty
/// where it says nothing.
inline std::vector<double> gpu_state() {
  std::array<double, 3> v{};
  std::FILE* pipe = ::popen(
      "nvidia-smi --id=0 --query-gpu=clocks.sm,power.draw,temperature.gpu "
      "--format=csv,noheader,nounits 2> /dev/null",
      "r");
  if (!pipe) return {};
  const int read = std::fscanf(pipe, "%lf, %lf, %lf", &v[0], &v[1], &v[2]);
  ::pclose(pipe);
  return read == 3 ? std::vector<double>(v.begin(), v.end()) : std::vector<double>();
}

}  // namespace gradus::bench
