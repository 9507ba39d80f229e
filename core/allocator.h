#pragma once
// Memory for tensors. Freed blocks are kept by size class (at most an eighth larger than asked for)
// and handed out again, so a training step that repeats allocates nothing from the system.
//
//   pool of the CPU                 all threads share it
//   pool of a thread on a GPU       its blocks are reused on the thread's stream alone: the order of
//                                   the stream then guarantees that their old readers are done
//   PrivatePool                     for a CUDA graph: its kernels have the addresses written into
//                                   them, so nobody else may have these blocks while it lives
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/device.h"

namespace gradus {

struct MemoryBlock;  // a piece of memory, its size, its pool, and what it was allocated for

struct Allocation {
  void* data = nullptr;
  MemoryBlock* block = nullptr;  // null: a small piece of CPU memory, which core/pool.h has given
};

/// `bytes` on `device`, aligned to at least 64, from this thread's pool. Error with what was asked for,
/// what is free and who holds how much when memory runs out.
Allocation allocate(Device device, size_t bytes);
void deallocate(const Allocation& allocation, size_t bytes);

struct MemoryStats {
  int64_t live = 0;                // bytes in use by tensors
  int64_t peak = 0;                // the most that live has been since reset_peak
  int64_t cached = 0;              // bytes kept for reuse
  int64_t reserved = 0;            // bytes taken from the system: those in use, and those kept
  int64_t system_allocations = 0;  // how often the system was asked, since the program began
};
MemoryStats memory_stats(Device device);
void reset_peak(Device device);
/// Gives cached blocks back to the system, those of private pools excepted.
void empty_cache(Device device);

/// Who holds memory: the op whose forward or backward allocated it, or a Scope by its name. Largest
/// first; without the small pieces of the CPU.
struct MemoryHolder {
  std::string name;  // "linear, forward"
  int64_t bytes = 0, blocks = 0;
};
std::vector<MemoryHolder> memory_holders(Device device);

class MemoryPool;

/// Blocks that only a thread inside UsePool is given. Its destructor gives them back to the system; one
/// that a tensor still holds follows when the tensor dies.
class PrivatePool {
 public:
  explicit PrivatePool(Device device);
  ~PrivatePool();
  PrivatePool(const PrivatePool&) = delete;
  PrivatePool& operator=(const PrivatePool&) = delete;

 private:
  friend class UsePool;
  MemoryPool* pool_;
};

/// While one lives, this thread allocates from `pool` on the pool's device.
class UsePool {
 public:
  explicit UsePool(const PrivatePool& pool);
  ~UsePool();
  UsePool(const UsePool&) = delete;
  UsePool& operator=(const UsePool&) = delete;

 private:
  MemoryPool* pool_;
  MemoryPool* before_;
};

/// While one lives, this thread's new CPU and CUDA blocks are filled with 0xFF (NaN in every floating
/// type), so that a test sees an element that nobody wrote.
class PoisonAllocations {
 public:
  PoisonAllocations();
  ~PoisonAllocations();

 private:
  bool before_;
};

}  // namespace gradus
