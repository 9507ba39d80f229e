#pragma once
// Rows of a table taken by groups of threads (see ops/lookup.h). How they are added: ops/lookup_sorted_cuda.h.
#include "ops/lookup_cpu.h"
#include "ops/row.h"

#if defined(__CUDACC__)

namespace gradus::detail {

struct OpName {  // kernels cannot read the host's strings
  char text[32] = {};
  explicit OpName(const char* op) { strncpy(text, op, sizeof(text) - 1); }
};

/// Rows of `units` values of Unit, blockDim.x threads a row. A row that the table lacks becomes 0.
template <class Unit>
__global__ void take_kernel(__grid_constant__ const Keys k, int64_t rows, int64_t units,
                            const Unit* x, Unit* y, OpName op, cuda::DeviceError* error) {
  int64_t j = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (j >= rows) return;
  int64_t position = k.position(j), id = k.id(position);
  bool here = k.here(id);
  if (!k.valid(id) && threadIdx.x == 0) cuda::report_index(error, op.text, position, id, k.total);
  x += here ? k.key(j, id) * units : 0;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) y[j * units + i] = here ? x[i] : Unit{};
}

inline int threads_for(int64_t columns) {
  int threads = 1;
  while (threads < columns && threads < 32) threads *= 2;
  return threads;
}
inline unsigned blocks_for(int64_t n, int64_t block) { return unsigned((n + block - 1) / block); }

template <class Unit>
bool cuda_take_units(Device device, const char* op, const RowMap& m, const Keys& k, int64_t size,
                     const void* x, void* y) {
  int64_t bytes = m.length * size;
  if (bytes % int64_t(sizeof(Unit)) || !aligned_to(sizeof(Unit), x)) return false;
  int64_t units = bytes / int64_t(sizeof(Unit));
  dim3 block(threads_for(units));
  block.y = 256 / block.x;
  take_kernel<<<blocks_for(m.rows(), block.y), block, 0, cuda::stream(device)>>>(
      k, m.rows(), units, static_cast<const Unit*>(x), static_cast<Unit*>(y), OpName(op),
      cuda::error_record(device));
  cuda::check_launch("take rows");
  return true;
}

/// Elements of `size` bytes, moved 16 bytes at a time where rows allow it.
inline void cuda_take(Device device, const char* op, const RowMap& m, const Keys& k, int64_t size,
                      const void* x, void* y) {
  cuda_take_units<uint4>(device, op, m, k, size, x, y) ||
      cuda_take_units<uint32_t>(device, op, m, k, size, x, y) ||
      cuda_take_units<uint16_t>(device, op, m, k, size, x, y) ||
      cuda_take_units<uint8_t>(device, op, m, k, size, x, y);
}

}  // namespace gradus::detail

#endif
