#pragma once
// How another thread ends the waits of this one: a watchdog that has aborted a collective writes here
// why, and the next wait of the thread that owns the stream throws it.
#include <atomic>
#include <mutex>
#include <string>

#include "core/device.h"

namespace gradus::cuda {

class DeviceFailure {
 public:
  /// The first text is kept.
  void set(const std::string& text);
  /// Error with the text, once.
  void rethrow();

 private:
  std::atomic<bool> is_set_{false};
  std::mutex mutex_;
  std::string text_;
};

/// This thread's on `device`; it lives until the process ends.
DeviceFailure& device_failure(Device device);

}  // namespace gradus::cuda
