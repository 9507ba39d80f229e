#pragma once
// The CUDA side of lookup (see ops/lookup.h). Rows are taken by groups of threads; they are added after
// a sort by key, which brings together what has to be summed.
//
// Note [runs across chunks]
// The sorted rows are cut into chunks of kChunk. Each is summed, run by run, by a group of threads that
// own columns. A run inside one chunk goes to the table at once; of a run that crosses chunks each
// chunk keeps its part, as `tail` where the run begins and as `head` where it goes on:
//
//   keys    3 3 5 5 | 5 5 5 5 | 5 7 8 8         chunk 0: 3 to the table, 5 to tail[0]
//             chunk 0   chunk 1   chunk 2       chunk 1: head[1];   chunk 2: head[2], 7 and 8
//
// and tail[0] + head[1] + head[2] is summed afterwards. So an id that occurs a thousand times (text
// has such words) is no longer work for a single group.
#include "ops/lookup_cpu.h"

#if defined(__CUDACC__)
#include <cub/device/device_radix_sort.cuh>

namespace gradus::detail {

struct OpName {  // kernels cannot read the host's strings
  char text[32] = {};
  explicit OpName(const char* op) { strncpy(text, op, sizeof(text) - 1); }
};

/// Rows of `units` values of Unit, blockDim.x threads a row. A row whose id is invalid becomes 0.
template <class Unit>
__global__ void take_kernel(__grid_constant__ const Keys k, int64_t rows, int64_t units,
                            const Unit* x, Unit* y, OpName op, cuda::DeviceError* error) {
  int64_t j = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (j >= rows) return;
  int64_t position = k.position(j), id = k.id(position);
  bool valid = k.valid(id);
  if (!valid && threadIdx.x == 0) cuda::report_index(error, op.text, position, id, k.limit);
  x += valid ? k.key(j, id) * units : 0;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x)
    y[j * units + i] = valid ? x[i] : Unit{};
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

/// (key, position) of each row; invalid ids get the key `table_rows`, which nobody adds.
static __global__ void keys_kernel(__grid_constant__ const Keys k, int64_t rows,
                                   uint32_t table_rows, uint32_t* keys, uint32_t* positions,
                                   OpName op, cuda::DeviceError* error) {
  int64_t j = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= rows) return;
  int64_t position = k.position(j), id = k.id(position);
  bool valid = k.valid(id);
  if (!valid) cuda::report_index(error, op.text, position, id, k.limit);
  keys[j] = valid ? uint32_t(k.key(j, id)) : table_rows;
  positions[j] = uint32_t(j);
}

/// Rows in the order of their keys: equal keys are neighbours, in the order of their positions.
struct SortedRows {
  const uint32_t *keys, *positions;
  int64_t rows;
  uint32_t table_rows;
};

inline constexpr int kChunk = 32;

/// Where a thread's V columns are: neighbours that it loads at once, or blockDim.x apart.
template <int V>
struct Columns {
  int64_t first, gap, length;
  bool wide;
  __device__ Columns(int64_t n, bool w) : gap(w ? 1 : blockDim.x), length(n), wide(w) {
    first = int64_t(blockIdx.y) * blockDim.x * V + threadIdx.x * (w ? V : 1);
  }
  template <class T, class A>
  __device__ void add(const T* row, A (&sum)[V]) const {
    if (wide && first < length) {
      auto pack = *reinterpret_cast<const Pack<T, V>*>(row + first);
#pragma unroll
      for (int j = 0; j < V; ++j) sum[j] += A(pack.v[j]);
    } else if (!wide) {
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (first + j * gap < length) sum[j] += A(row[first + j * gap]);
    }
  }
  /// to ← (add ? to : 0) + sum, sum ← 0
  template <class D, class A>
  __device__ void flush(A (&sum)[V], D* to, bool add) const {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      int64_t c = first + j * gap;
      if (c < length) to[c] = D(add ? A(to[c]) + sum[j] : sum[j]);
      sum[j] = 0;
    }
  }
};

template <int V, class T, class D, class A>
__global__ void add_chunks_kernel(SortedRows s, const T* dy, int64_t length, bool wide, D* into,
                                  bool add, A* heads, A* tails) {
  int64_t chunk = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  int64_t begin = chunk * kChunk, end = ::min(begin + kChunk, s.rows);
  if (begin >= end) return;
  Columns<V> columns(length, wide);
  A sum[V] = {};
  uint32_t key = s.keys[begin];
  bool head = begin > 0 && s.keys[begin - 1] == key;
  auto close = [&] {
    if (head)
      columns.flush(sum, heads + chunk * length, false);
    else if (key < s.table_rows)
      columns.flush(sum, into + key * length, add);
    head = false;
  };
#pragma unroll 4
  for (int64_t i = begin; i < end; ++i) {
    if (s.keys[i] != key) {
      close();
      key = s.keys[i];
    }
    columns.add(dy + s.positions[i] * length, sum);
  }
  bool goes_on = end < s.rows && s.keys[end] == key;
  if (goes_on && !head)
    columns.flush(sum, tails + chunk * length, false);
  else
    close();
}

/// Sums the parts of the run that begins in a chunk and leaves it.
template <int V, class D, class A>
__global__ void add_parts_kernel(SortedRows s, int64_t length, D* into, bool add, const A* heads,
                                 const A* tails) {
  int64_t chunk = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  int64_t begin = chunk * kChunk, end = begin + kChunk;
  if (end >= s.rows || s.keys[end] != s.keys[end - 1]) return;
  uint32_t key = s.keys[end];
  bool began_before = begin > 0 && s.keys[begin - 1] == key;
  if (began_before || key == s.table_rows) return;
  int64_t low = end + 1, high = s.rows;  // the first sorted row of another key
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (s.keys[middle] == key)
      low = middle + 1;
    else
      high = middle;
  }
  Columns<V> columns(length, false);
  A sum[V] = {};
  columns.add(tails + chunk * length, sum);
#pragma unroll 4
  for (int64_t c = chunk + 1; c <= (low - 1) / kChunk; ++c) columns.add(heads + c * length, sum);
  columns.flush(sum, into + key * length, add);
}

template <class T>
Tensor device_array(int64_t n, Device device) {
  return empty({n * int64_t(sizeof(T))}, DType::u8, device);
}

/// Four arrays in one: keys and positions, before and after.
inline SortedRows sort_rows(Device device, const char* op, const RowMap& m, const Keys& k,
                            Tensor& memory) {
  int64_t n = m.rows();
  check(n < INT32_MAX && m.table_rows() < UINT32_MAX, op, ": more than 2³¹ rows: ", m.result,
        " from ", m.table);
  memory = device_array<uint32_t>(4 * n, device);
  auto* keys = static_cast<uint32_t*>(memory.raw());
  cudaStream_t stream = cuda::stream(device);
  auto rows = uint32_t(m.table_rows());
  keys_kernel<<<blocks_for(n, 256), 256, 0, stream>>>(k, n, rows, keys, keys + 2 * n, OpName(op),
                                                      cuda::error_record(device));
  cuda::check_launch("keys of rows");
  int bits = 1;
  while (bits < 32 && rows >> bits) ++bits;
  auto sort = [&](void* temporary, size_t& bytes) {
    check(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, keys + n, keys + 2 * n,
                                          keys + 3 * n, int(n), 0, bits, stream),
          "sorting ids");
  };
  size_t bytes = 0;
  sort(nullptr, bytes);
  Tensor temporary = device_array<char>(int64_t(bytes), device);
  sort(temporary.raw(), bytes);
  return {keys + n, keys + 3 * n, n, rows};
}

template <class T, class D>
void cuda_add(Device device, const char* op, const RowMap& m, const Keys& k, const T* dy, D* into,
              bool add) {
  using A = Compute<T>;
  constexpr int V = 16 / sizeof(T);
  cudaStream_t stream = cuda::stream(device);
  if (!add) cuda::fill_bytes(device, into, 0, size_t(m.table_rows() * m.length) * sizeof(D));
  if (m.rows() == 0 || m.length == 0) return;
  Tensor memory;
  SortedRows s = sort_rows(device, op, m, k, memory);
  int64_t chunks = (s.rows + kChunk - 1) / kChunk;
  Tensor parts = device_array<A>(2 * chunks * m.length, device);
  A *heads = static_cast<A*>(parts.raw()), *tails = heads + chunks * m.length;
  dim3 block(threads_for((m.length + V - 1) / V));
  block.y = 128 / block.x;
  dim3 grid(blocks_for(chunks, block.y), blocks_for(m.length, block.x * V));
  bool wide = m.length % V == 0 && aligned_to(16, dy);
  add_chunks_kernel<V><<<grid, block, 0, stream>>>(s, dy, m.length, wide, into, add, heads, tails);
  add_parts_kernel<V><<<grid, block, 0, stream>>>(s, m.length, into, add, heads, tails);
  cuda::check_launch("add rows");
}

}  // namespace gradus::detail

#endif
