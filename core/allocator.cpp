#include "core/allocator.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "core/check.h"
#include "core/cuda.h"
#include "core/memory_pool.h"
#include "core/pool.h"

namespace gradus {
namespace {

constexpr size_t kDevices = 16;
constinit thread_local MemoryPool* thread_pools[kDevices] = {};  // of this thread, by GPU
thread_local bool poison = false;

}  // namespace

// A thread's pool outlives the thread, as its stream does: tensors may.
MemoryPool*& thread_pool(Device device) {
  MemoryPool*& pool = thread_pools[size_t(device.index)];
  if (!pool) {
    check_device(device);
    pool = new MemoryPool(device, false);
  }
  return pool;
}

namespace {

MemoryPool& pool_for(Device device) {
  static MemoryPool& cpu = *new MemoryPool(kCpu, false);
  return device.is_cuda() ? *thread_pool(device) : cpu;
}

std::vector<MemoryPool*> pools_of(Device device) {
  DeviceMemory& memory = memory_of(device);
  std::lock_guard lock(memory.mutex);
  return {memory.pools.begin(), memory.pools.end()};
}

void count(DeviceMemory& memory, int64_t bytes) {
  int64_t live = memory.live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = memory.peak.load(std::memory_order_relaxed);
  while (live > peak && !memory.peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

std::string name_of(const Activity& owner) {
  if (owner.name.empty()) return "what was made outside of ops";
  const char* phase = owner.phase == Phase::forward    ? ", forward"
                      : owner.phase == Phase::backward ? ", backward"
                                                       : "";
  return std::string(owner.name) + phase;
}

std::string megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MB", double(bytes) / 1e6);
  return text;
}

std::string largest_holders(Device device) {
  std::string text;
  const std::vector<MemoryHolder> all = memory_holders(device);
  for (size_t i = 0; i < std::min<size_t>(all.size(), 6); ++i)
    text += "\n  " + megabytes(all[i].bytes) + " in " + std::to_string(all[i].blocks) +
            (all[i].blocks == 1 ? " tensor of " : " tensors of ") + all[i].name;
  return text.empty() ? text : "\nthe largest holders:" + text;
}

[[noreturn]] void fail_out_of_memory(Device device, size_t bytes) {
  const MemoryStats s = memory_stats(device);
  const std::string free =
      device.is_cuda() ? ", " + megabytes(cuda::free_memory(device)) + " free" : "";
  fail("out of memory on ", device, ": ", name_of(detail::activity), " asks for ",
       megabytes(int64_t(bytes)), "; ", megabytes(s.live), " are in use by tensors, ",
       megabytes(s.cached), " kept for reuse", free,
       "; use a smaller batch, or recompute activations", largest_holders(device));
}

MemoryBlock* block_for(Device device, size_t bytes) {
  if (bytes > kLargestBlock) fail_out_of_memory(device, bytes);
  MemoryPool& pool = pool_for(device);
  const SizeClass size = size_class(bytes);
  if (MemoryBlock* block = pool.take(size, bytes)) return block;
  if (MemoryBlock* block = pool.from_system(size, bytes)) return block;
  empty_cache(device);
  if (MemoryBlock* block = pool.from_system(size, bytes)) return block;
  fail_out_of_memory(device, bytes);
}

}  // namespace

Allocation allocate(Device device, size_t bytes) {
  const bool small = !device.is_cuda() && bytes <= kPoolLargest;
  MemoryBlock* block = small ? nullptr : block_for(device, bytes);
  void* data = small ? pool_allocate(bytes) : block->data;
  count(memory_of(device), int64_t(bytes));
  if (poison)
    device.is_cuda() ? cuda::fill_bytes(device, data, 0xff, bytes)
                     : (void)memset(data, 0xff, bytes);
  return {data, block};
}

void deallocate(const Allocation& a, size_t bytes) {
  memory_of(a.block ? a.block->pool->device : kCpu)
      .live.fetch_sub(int64_t(bytes), std::memory_order_relaxed);
  a.block ? a.block->pool->put_back(a.block) : pool_free(a.data, bytes);
}

MemoryStats memory_stats(Device device) {
  DeviceMemory& m = memory_of(device);
  return {m.live, m.peak, m.cached, m.reserved, m.system_allocations};
}

void reset_peak(Device device) {
  DeviceMemory& memory = memory_of(device);
  memory.peak.store(memory.live.load());
}

void empty_cache(Device device) {
  if (device.is_cuda()) synchronize(device);
  for (MemoryPool* pool : pools_of(device))
    if (!pool->is_private) pool->trim();
}

std::vector<MemoryHolder> memory_holders(Device device) {
  std::map<std::string, MemoryHolder> by_name;
  for (MemoryPool* pool : pools_of(device))
    pool->each_in_use([&](const MemoryBlock& block) {
      MemoryHolder& holder = by_name[name_of(block.owner)];
      holder.bytes += int64_t(block.asked);
      ++holder.blocks;
    });
  std::vector<MemoryHolder> list;
  for (auto& [name, holder] : by_name) list.push_back({name, holder.bytes, holder.blocks});
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return list;
}

PrivatePool::PrivatePool(Device device) {
  check(device.is_cuda(), "a private pool is for a GPU, got ", device);
  check_device(device);
  pool_ = new MemoryPool(device, true);
}
PrivatePool::~PrivatePool() { pool_->close(); }

UsePool::UsePool(const PrivatePool& pool)
    : pool_(pool.pool_), before_(std::exchange(thread_pool(pool_->device), pool_)) {}
UsePool::~UsePool() { thread_pools[size_t(pool_->device.index)] = before_; }

PoisonAllocations::PoisonAllocations() : before_(poison) { poison = true; }
PoisonAllocations::~PoisonAllocations() { poison = before_; }

}  // namespace gradus
