#include "core/pool.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace gradus {
namespace {

constexpr size_t kStep = 64;
constexpr size_t kClasses = kPoolLargest / kStep;

struct FreeBlock {
  FreeBlock* next;
};

struct ThreadPool {
  FreeBlock* free[kClasses] = {};
  ~ThreadPool();
};

// Destructors of other thread-local and static objects may free after the pool is gone: they find
// `pool_is_gone` and go to the system allocator.
thread_local bool pool_is_gone = false;
thread_local ThreadPool pool;

ThreadPool::~ThreadPool() {
  pool_is_gone = true;
  for (FreeBlock* b : free)
    while (b) std::free(std::exchange(b, b->next));
}

void* from_system(size_t bytes) {
  void* p = std::aligned_alloc(kStep, (bytes + kStep - 1) / kStep * kStep);
  if (!p) throw std::bad_alloc();
  return p;
}

size_t class_of(size_t bytes) { return bytes ? (bytes - 1) / kStep : 0; }

}  // namespace

void* pool_allocate(size_t bytes) {
  if (bytes > kPoolLargest || pool_is_gone) return from_system(bytes ? bytes : 1);
  FreeBlock*& head = pool.free[class_of(bytes)];
  if (!head) return from_system((class_of(bytes) + 1) * kStep);
  FreeBlock* block = head;
  head = block->next;
  return block;
}

void pool_free(void* p, size_t bytes) {
  if (bytes > kPoolLargest || pool_is_gone) return std::free(p);
  FreeBlock*& head = pool.free[class_of(bytes)];
  head = new (p) FreeBlock{head};
}

}  // namespace gradus
