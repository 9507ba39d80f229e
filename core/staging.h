#pragma once
// Copies between host and device that nobody waits for.
//
// A GPU copies by itself from and to host memory that cannot be moved ("pinned"). A copy from other
// memory goes through a piece of that first, and the host waits.
#include "core/device.h"

namespace gradus {

/// Pinned memory on its way to or from one tensor. On the CPU it is ordinary memory, and copies are
/// done at once.
class Staging {
 public:
  Staging(Device device, size_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// The memory, once the last copy from or to it is done: waits for that if need be. Error where a
  /// watchdog has ended what the copy was behind (core/device_failure.h).
  void* wait();
  /// Enqueues a copy of all of it to `to`, or of `from` into it, on this thread's stream.
  void copy_to(void* to);
  void copy_from(const void* from);

 private:
  void enqueue(void* to, const void* from);

  Device device_;
  size_t bytes_;
  void* host_ = nullptr;
  void* event_ = nullptr;  // a cudaEvent_t: the last copy
};

}  // namespace gradus
