#pragma once
// The bytes that a tensor and all its views share.
#include "core/allocator.h"
#include "core/pool.h"
#include "core/ref.h"

namespace gradus {

/// A block of memory on one device. `version` counts the writes in place, so that a tensor saved for
/// backward notices them. A view keeps the whole block alive.
class Storage final : public RefCounted, public Pooled {
 public:
  Storage(Device device, size_t bytes);
  ~Storage();

  void* data() const { return memory_.data; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  uint32_t version = 0;

 private:
  Allocation memory_;
  size_t bytes_;
  Device device_;
};

inline void acquire(Storage* s) { retain(s); }
inline void release(Storage* s) {
  if (drop(s)) delete s;
}

}  // namespace gradus
