#pragma once
// Memory for the small objects of the graph (tensors, nodes, storages and the bytes of scalars).
// Each thread keeps free lists by size, so the usual allocation is a pop and a free is a push.
#include <cstddef>

namespace gradus {

inline constexpr size_t kPoolLargest = 4096;  // bytes; larger requests are none of the pool's business

/// `bytes` of memory, aligned to 64.
void* pool_allocate(size_t bytes);
void pool_free(void* p, size_t bytes);

/// Base of a class whose objects come from the pool.
struct Pooled {
  static void* operator new(size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* p, size_t bytes) { pool_free(p, bytes); }
};

}  // namespace gradus
