#pragma once
// The blocks behind core/allocator.h: free lists by size class, one set of them for each stream.
#include <array>
#include <atomic>
#include <deque>
#include <mutex>

#include "core/device.h"
#include "core/scope.h"

namespace gradus {

/// Eight classes per power of two: sizes 8·2ᵏ … 15·2ᵏ, the smallest 512 bytes.
struct SizeClass {
  int index;
  size_t bytes;
};
SizeClass size_class(size_t bytes);

inline constexpr size_t kLargestBlock = size_t(1) << 48;  // what is larger cannot be meant
inline constexpr int kSizeClasses = 48 * 8;

class MemoryPool;

/// A piece of memory. The record stays when the memory goes back to the system.
struct MemoryBlock {
  void* data = nullptr;
  SizeClass size{};
  bool in_use = false;
  size_t asked = 0;  // bytes of it that were asked for
  Activity owner{};  // by whom
  MemoryPool* pool = nullptr;
  MemoryBlock* next = nullptr;  // on a free list
};

class MemoryPool {
 public:
  MemoryPool(Device device, bool is_private);

  /// A free block for `asked` bytes, or null.
  MemoryBlock* take(SizeClass size, size_t asked);
  /// A block from the system, or null when that has no memory left.
  MemoryBlock* from_system(SizeClass size, size_t asked);
  void put_back(MemoryBlock* block);
  /// Free blocks go back to the system.
  void trim();
  /// Trims now, and every block from here on as it is put back.
  void close();

  /// Calls f(block) for each block in use.
  template <class F>
  void each_in_use(F&& f) {
    std::lock_guard lock(mutex_);
    for (const MemoryBlock& block : blocks_)
      if (block.in_use) f(block);
  }

  const Device device;
  const bool is_private;

 private:
  MemoryBlock* give_out(MemoryBlock* block, size_t asked);
  void to_system(MemoryBlock* block);

  std::mutex mutex_;
  std::array<MemoryBlock*, kSizeClasses> free_{};
  std::deque<MemoryBlock> blocks_;    // every record: a deque does not move them
  MemoryBlock* no_memory_ = nullptr;  // records whose memory went back
  bool closed_ = false;
};

/// What the pools of a device have together. All live as long as the program, like this.
struct DeviceMemory {
  std::atomic<int64_t> live{0}, peak{0}, cached{0}, reserved{0}, system_allocations{0};
  std::mutex mutex;
  std::deque<MemoryPool*> pools;
};
DeviceMemory& memory_of(Device device);

/// The pool that this thread allocates from on a GPU, to be exchanged for another.
MemoryPool*& thread_pool(Device device);

}  // namespace gradus
