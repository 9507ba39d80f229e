#pragma once
// The bytes that a tensor and all its views share.
//
// Note [late writes]
// What is written aside (core/aside.h) is there once the stream has waited for it. Where the reader is known, it
// waits (parallel/pending.h). Parameters are read by whatever the model is made of, so there the memory knows:
//
//   x.join_before_use(join)       work elsewhere still writes to x
//   y = matmul(h, w)              w is a view of x: before anybody is given its address, join() is called, once
//   z = h + 1                     has nothing to do with it, and waits for nothing
#include <functional>
#include <memory>
#include <vector>

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

  void* data() const { return memory_.data; }  // see Note [late writes]
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  uint32_t version = 0;

  /// Bytes [begin, end) are written until join() has been called.
  void add_late_write(size_t begin, size_t end, std::function<void()> join);
  bool has_late_writes() const { return late_ != nullptr; }
  /// Joins those that touch [begin, end).
  void join_late_writes(size_t begin, size_t end);

 private:
  struct LateWrite {
    size_t begin, end;
    std::function<void()> join;
  };
  std::unique_ptr<std::vector<LateWrite>> late_;  // null: there are none
  Allocation memory_;
  size_t bytes_;
  Device device_;
};

inline void acquire(Storage* s) { retain(s); }
inline void release(Storage* s) {
  if (drop(s)) delete s;
}

}  // namespace gradus
