#include "core/allocator.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/check.h"
#include "core/cuda.h"
#include "core/pool.h"

namespace gradus {
namespace {

constexpr int kClasses = 48 * 8;
constexpr int kDevices = 17;  // the CPU and 16 GPUs

// Eight classes per power of two: sizes 8·2ᵏ … 15·2ᵏ. Smallest block 512 bytes.
struct SizeClass {
  int index;
  size_t bytes;
};
SizeClass size_class(size_t bytes) {
  bytes = bytes < 512 ? 512 : bytes;
  int k = int(std::bit_width(bytes - 1)) - 4;  // bytes ≤ 16·2ᵏ
  size_t eighths = (bytes + (size_t(1) << k) - 1) >> k;  // 9 … 16 (or 8)
  return {k * 8 + int(eighths) - 8, eighths << k};
}

struct DevicePool {
  std::mutex mutex;
  std::map<void*, std::array<std::vector<void*>, kClasses>> free;  // by stream
  std::atomic<int64_t> live{0}, peak{0}, cached{0};
};
DevicePool& pool_of(Device d) {
  static auto* pools = new std::array<DevicePool, kDevices>;  // outlives every static tensor
  return (*pools)[d.is_cuda() ? 1 + d.index : 0];
}

void* from_system(Device d, size_t bytes) {
  return d.is_cuda() ? cuda::allocate(d, bytes) : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}
void to_system(Device d, void* p) { d.is_cuda() ? cuda::free(d, p) : std::free(p); }

void count(DevicePool& pool, int64_t bytes) {
  int64_t live = pool.live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = pool.peak.load(std::memory_order_relaxed);
  while (live > peak && !pool.peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

void* take_cached(DevicePool& pool, SizeClass c, void* stream) {
  std::lock_guard lock(pool.mutex);
  auto& list = pool.free[stream][c.index];
  if (list.empty()) return nullptr;
  void* p = list.back();
  list.pop_back();
  pool.cached.fetch_sub(int64_t(c.bytes), std::memory_order_relaxed);
  return p;
}

void* allocate_block(Device device, DevicePool& pool, size_t bytes, void* stream) {
  SizeClass c = size_class(bytes);
  if (void* p = take_cached(pool, c, stream)) return p;
  if (void* p = from_system(device, c.bytes)) return p;
  empty_cache(device);
  if (void* p = from_system(device, c.bytes)) return p;
  MemoryStats s = memory_stats(device);
  fail("out of memory on ", device, ": ", bytes, " bytes requested, ", s.live, " live in tensors, ",
       s.cached, " cached, ", device.is_cuda() ? cuda::free_memory(device) : 0,
       " free; use a smaller batch, or recompute activations");
}

thread_local bool poison = false;

}  // namespace

void* allocate(Device device, size_t bytes, void* stream) {
  DevicePool& pool = pool_of(device);
  bool small = !device.is_cuda() && bytes <= kPoolLargest;
  void* p = small ? pool_allocate(bytes) : allocate_block(device, pool, bytes, stream);
  count(pool, int64_t(bytes));
  if (poison) device.is_cuda() ? cuda::fill_bytes(device, p, 0xff, bytes) : (void)memset(p, 0xff, bytes);
  return p;
}

void deallocate(Device device, void* p, size_t bytes, void* stream) {
  DevicePool& pool = pool_of(device);
  pool.live.fetch_sub(int64_t(bytes), std::memory_order_relaxed);
  if (!device.is_cuda() && bytes <= kPoolLargest) return pool_free(p, bytes);
  SizeClass c = size_class(bytes);
  std::lock_guard lock(pool.mutex);
  pool.free[stream][c.index].push_back(p);
  pool.cached.fetch_add(int64_t(c.bytes), std::memory_order_relaxed);
}

MemoryStats memory_stats(Device device) {
  DevicePool& pool = pool_of(device);
  return {pool.live, pool.peak, pool.cached};
}

void reset_peak(Device device) {
  DevicePool& pool = pool_of(device);
  pool.peak.store(pool.live.load());
}

void empty_cache(Device device) {
  DevicePool& pool = pool_of(device);
  if (device.is_cuda()) synchronize(device);
  std::lock_guard lock(pool.mutex);
  for (auto& [stream, classes] : pool.free)
    for (auto& list : classes) {
      for (void* p : list) to_system(device, p);
      list.clear();
    }
  pool.cached = 0;
}

PoisonAllocations::PoisonAllocations() : before_(poison) { poison = true; }
PoisonAllocations::~PoisonAllocations() { poison = before_; }

}  // namespace gradus
