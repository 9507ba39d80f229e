#pragma once
// When steps end, and what the GPU was doing meanwhile.
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "core/cuda.h"

namespace gradus::bench {

inline double milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

/// A mark behind each step: an event on a GPU, which the device passes when it is there, or the time.
class StepClock {
 public:
  explicit StepClock(Device device) : device_(device) {}
  ~StepClock() {
#if defined(GRADUS_CUDA)
    for (cudaEvent_t e : events_) (void)cudaEventDestroy(e);
#endif
  }
  StepClock(const StepClock&) = delete;

  void mark() {
#if defined(GRADUS_CUDA)
    if (device_.is_cuda()) {
      check(cudaEventCreate(&events_.emplace_back()), "making an event");
      return check(cudaEventRecord(events_.back(), cuda::stream(device_)), "recording an event");
    }
#endif
    times_.push_back(milliseconds());
  }

  /// Milliseconds from each mark to the next. Waits for the device.
  std::vector<double> intervals() const {
    std::vector<double> list;
    synchronize(device_);
#if defined(GRADUS_CUDA)
    for (size_t i = 1; i < events_.size(); ++i) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, events_[i - 1], events_[i]), "reading an event");
      list.push_back(ms);
    }
#endif
    for (size_t i = 1; i < times_.size(); ++i) list.push_back(times_[i] - times_[i - 1]);
    return list;
  }

 private:
  Device device_;
  std::vector<double> times_;
#if defined(GRADUS_CUDA)
  std::vector<cudaEvent_t> events_;
#endif
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
