#pragma once
// Memory for tensors. Freed blocks are kept by size class (at most an eighth larger than asked for)
// and handed out again, so a training step that repeats allocates nothing from the system.
//
// On CUDA a block belongs to the stream it was first used on and is only reused there: the order of
// the stream then guarantees that its old readers are done.
#include <cstddef>
#include <cstdint>

#include "core/device.h"

namespace gradus {

/// `bytes` on `device` for use on `stream` (a cudaStream_t; null on the CPU), aligned to at least 64.
/// Error with bytes requested, live, cached and free when memory runs out.
void* allocate(Device device, size_t bytes, void* stream);
void deallocate(Device device, void* p, size_t bytes, void* stream);

struct MemoryStats {
  int64_t live = 0;    // bytes in use by tensors
  int64_t peak = 0;    // the most that live has been since reset_peak
  int64_t cached = 0;  // bytes kept for reuse
};
MemoryStats memory_stats(Device device);
void reset_peak(Device device);
/// Gives cached blocks back to the system.
void empty_cache(Device device);

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
