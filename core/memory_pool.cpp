#include "core/memory_pool.h"

#include <bit>
#include <cstdlib>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/cuda.h"

namespace gradus {
namespace {

constexpr int kDevices = 17;  // the CPU and 16 GPUs

/// Large blocks in pages of 2 MB, where the system has them: a pass over gigabytes then waits less for
/// the translation of addresses.
void* allocate_on_cpu(size_t bytes) {
  constexpr size_t kLarge = 8 << 20, kPage = 2 << 20;
  if (bytes < kLarge) return std::aligned_alloc(64, bytes);
  void* p = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
#if defined(__linux__)
  if (p) (void)madvise(p, bytes, MADV_HUGEPAGE);  // a wish: refused, the pages are small
#endif
  return p;
}
void* system_allocate(Device device, size_t bytes) {
  return device.is_cuda() ? cuda::allocate(device, bytes) : allocate_on_cpu(bytes);
}
void system_free(Device device, void* p) {
  device.is_cuda() ? cuda::free(device, p) : std::free(p);
}

MemoryBlock* pop(MemoryBlock*& list) {
  MemoryBlock* first = list;
  if (first) list = std::exchange(first->next, nullptr);
  return first;
}
void push(MemoryBlock*& list, MemoryBlock* block) { block->next = std::exchange(list, block); }

}  // namespace

SizeClass size_class(size_t bytes) {
  bytes = bytes < 512 ? 512 : bytes;
  int k = int(std::bit_width(bytes - 1)) - 4;            // bytes ≤ 16·2ᵏ
  size_t eighths = (bytes + (size_t(1) << k) - 1) >> k;  // 9 … 16 (or 8)
  return {k * 8 + int(eighths) - 8, eighths << k};
}

DeviceMemory& memory_of(Device device) {
  static auto* all = new std::array<DeviceMemory, kDevices>;  // outlives every static tensor
  return (*all)[device.is_cuda() ? size_t(1 + device.index) : 0];
}

MemoryPool::MemoryPool(Device d, bool only_mine) : device(d), is_private(only_mine) {
  DeviceMemory& memory = memory_of(d);
  std::lock_guard lock(memory.mutex);
  memory.pools.push_back(this);
}

MemoryBlock* MemoryPool::give_out(MemoryBlock* block, size_t asked) {
  block->in_use = true;
  block->asked = asked;
  block->owner = detail::activity;
  return block;
}

MemoryBlock* MemoryPool::take(SizeClass size, size_t asked) {
  std::lock_guard lock(mutex_);
  MemoryBlock* block = pop(free_[size_t(size.index)]);
  if (!block) return nullptr;
  memory_of(device).cached.fetch_sub(int64_t(size.bytes), std::memory_order_relaxed);
  return give_out(block, asked);
}

MemoryBlock* MemoryPool::from_system(SizeClass size, size_t asked) {
  void* data = system_allocate(device, size.bytes);
  if (!data) return nullptr;
  memory_of(device).reserved += int64_t(size.bytes);
  ++memory_of(device).system_allocations;
  std::lock_guard lock(mutex_);
  MemoryBlock* block = pop(no_memory_);
  if (!block) block = &blocks_.emplace_back();
  block->data = data;
  block->size = size;
  block->pool = this;
  return give_out(block, asked);
}

void MemoryPool::put_back(MemoryBlock* block) {
  std::lock_guard lock(mutex_);
  block->in_use = false;
  if (closed_) return to_system(block);
  push(free_[size_t(block->size.index)], block);
  memory_of(device).cached.fetch_add(int64_t(block->size.bytes), std::memory_order_relaxed);
}

void MemoryPool::to_system(MemoryBlock* block) {
  system_free(device, std::exchange(block->data, nullptr));
  memory_of(device).reserved -= int64_t(block->size.bytes);
  push(no_memory_, block);
}

void MemoryPool::trim() {
  std::lock_guard lock(mutex_);
  for (MemoryBlock*& list : free_)
    while (MemoryBlock* block = pop(list)) {
      memory_of(device).cached -= int64_t(block->size.bytes);
      to_system(block);
    }
}

void MemoryPool::close() {
  trim();
  std::lock_guard lock(mutex_);
  closed_ = true;
}

}  // namespace gradus
