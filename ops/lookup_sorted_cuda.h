#pragma once
// Rows added to those of a table (see ops/lookup.h), after a sort by key, which brings together what has to be
// summed.
//
// Note [runs across chunks]
// The sorted rows are cut into chunks of 32, one for each lane of a warp, and a chunk into pieces of one
// key. A piece is summed by a warp, whose lanes own columns. If it is the whole run of its key it goes to
// the table at once; of a run that crosses chunks each chunk keeps its part, as `tail` where the run
// begins and as `head` where it goes on:
//
//   keys    3 3 5 5 | 5 5 5 5 | 5 7 8 8         chunk 0: 3 to the table, 5 to tail[0]
//             chunk 0   chunk 1   chunk 2       chunk 1: head[1];   chunk 2: head[2], 7 and 8
//
// and tail[0] + head[1] + head[2] is summed afterwards. So an id that occurs a thousand times (text
// has such words) is no longer work for a single warp. And the pieces of a chunk are spread over the
// warps of a block: most ids are rare, and what takes the time is to wait for their rows.
#include "core/early_start.h"
#include "ops/lookup_cuda.h"

#if defined(__CUDACC__)
#include <cub/device/device_radix_sort.cuh>

namespace gradus::detail {

/// (key, position) of each row; ids that the table lacks get the key `table_rows`, which nobody adds.
static __global__ void keys_kernel(__grid_constant__ const Keys k, int64_t rows,
                                   uint32_t table_rows, uint32_t* keys, uint32_t* positions,
                                   OpName op, cuda::DeviceError* error) {
  int64_t j = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= rows) return;
  int64_t position = k.position(j), id = k.id(position);
  if (!k.valid(id)) cuda::report_index(error, op.text, position, id, k.total);
  keys[j] = k.here(id) ? uint32_t(k.key(j, id)) : table_rows;
  positions[j] = uint32_t(j);
}

/// Rows in the order of their keys: equal keys are neighbours, in the order of their positions.
struct SortedRows {
  const uint32_t *keys, *positions;
  int64_t rows;
  uint32_t table_rows;
};

inline constexpr int kChunk = 32, kChunkBlocks = 4;  // of a multiprocessor

/// V values as they were loaded. Widened only where they are used, they take half of the registers, and
/// twice as many rows are on their way.
template <class T, int V>
struct Loaded {
  using Unit = std::conditional_t<V == 1, T, uint4>;
  static constexpr int kUnits = int(V * sizeof(T) / sizeof(Unit)), kEach = V / kUnits;
  Unit units[kUnits] = {};
  __device__ Compute<T> operator[](int j) const {
    if constexpr (V == 1)
      return Compute<T>(units[0]);
    else
      return element<T>(units[j / kEach], j % kEach);
  }
};

/// A lane has V neighbouring columns of the rows that its warp works on. Blocks that share rows follow
/// each other, so that a row is read and written as a whole.
template <int V>
struct Columns {
  int64_t length, first, group;  // `group`: which rows
  __device__ explicit Columns(int64_t n) : length(n) {
    const unsigned blocks = unsigned((n + 32 * V - 1) / (32 * V));
    group = blockIdx.x / blocks;
    first = (int64_t(blockIdx.x - group * blocks) * 32 + threadIdx.x) * V;
  }

  template <class T>
  __device__ Loaded<T, V> read(const T* matrix, int64_t row) const {
    using L = Loaded<T, V>;
    L values;
    if (first >= length) return values;
    const auto* from = reinterpret_cast<const typename L::Unit*>(matrix + row * length + first);
#pragma unroll
    for (int u = 0; u < L::kUnits; ++u) values.units[u] = from[u];
    return values;
  }
  /// Asks for what the warp will read of a row: it is brought to the L2, and no register waits for it.
  template <class T>
  __device__ void ask_for(const T* matrix, int64_t row) const {
#if __CUDA_ARCH__ >= 900
    const int64_t begin = first - threadIdx.x * V, count = ::min(int64_t(32 * V), length - begin);
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(matrix + row * length + begin),
                 "r"(int(count * sizeof(T)))
                 : "memory");
#endif
  }
  template <class D, class A>
  __device__ void write(D* matrix, int64_t row, const A (&sum)[V]) const {
    Pack<D, V> pack;
#pragma unroll
    for (int j = 0; j < V; ++j) pack.v[j] = D(sum[j]);
    if (first < length) store_pack(matrix + row * length + first, pack);
  }
};

template <class T, int V, class A>
__device__ void add_values(const Loaded<T, V>& values, A (&sum)[V]) {
#pragma unroll
  for (int j = 0; j < V; ++j) sum[j] += A(values[j]);
}
/// Adds what get(0), …, get(n − 1) ask for, in order: all of a batch before the first is added.
template <class T, int V, class A, class F>
__device__ void add_all(int n, A (&sum)[V], F get) {
  constexpr int kBatch = 4;
  for (int i = 0; i < n; i += kBatch) {
    Loaded<T, V> values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      if (i + k < n) values[k] = get(i + k);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) add_values(values[k], sum);
  }
}

template <int V, class T, class D, class A>
__global__ void __launch_bounds__(256, kChunkBlocks)
    add_chunks_kernel(SortedRows s, const T* dy, int64_t length, D* into, bool add, A* heads,
                      A* tails) {
  cuda::let_next_start();
  const int lane = int(threadIdx.x);
  const Columns<V> columns(length);
  const int64_t chunk = columns.group, begin = chunk * kChunk;
  const int size = int(::min(int64_t(kChunk), s.rows - begin));
  const uint32_t key = lane < size ? s.keys[begin + lane] : s.table_rows,
                 position = lane < size ? s.positions[begin + lane] : 0;
  const uint32_t before = __shfl_up_sync(~0u, key, 1);
  unsigned starts = __ballot_sync(~0u, lane < size && (lane == 0 || key != before));
  if (V > 1 && key < s.table_rows && lane % int(blockDim.y) == int(threadIdx.y)) {
    columns.ask_for(dy, position);
    if (add && (starts >> lane & 1)) columns.ask_for(into, key);
  }
  const bool began_before = begin > 0 && s.keys[begin - 1] == __shfl_sync(~0u, key, 0);
  const bool goes_on =
      begin + size < s.rows && s.keys[begin + size] == __shfl_sync(~0u, key, size - 1);
  for (int piece = 0; starts; ++piece) {
    const int first = __ffs(int(starts)) - 1;
    starts &= starts - 1;
    if (piece % int(blockDim.y) != int(threadIdx.y)) continue;
    const int last = starts ? __ffs(int(starts)) - 1 : size;
    const uint32_t id = __shfl_sync(~0u, key, first);
    const bool head = first == 0 && began_before, tail = last == size && goes_on;
    if (id == s.table_rows) continue;  // of ids that the table lacks
    const bool whole = !head && !tail;
    Loaded<D, V> old;  // asked for with the rows
    if (add && whole) old = columns.read(into, id);
    A sum[V] = {};
    add_all<T>(last - first, sum,
               [&](int i) { return columns.read(dy, __shfl_sync(~0u, position, first + i)); });
    add_values(old, sum);
    if (whole)
      columns.write(into, id, sum);
    else
      columns.write(head ? heads : tails, chunk, sum);
  }
}

/// Sums the parts of the run that begins in a chunk and leaves it.
template <int V, class D, class A>
__global__ void __launch_bounds__(256) add_parts_kernel(SortedRows s, int64_t length, D* into,
                                                        bool add, const A* heads, const A* tails) {
  cuda::wait_for_before();
  const Columns<V> columns(length);
  const int64_t chunk = columns.group * blockDim.y + threadIdx.y;
  const int64_t begin = chunk * kChunk, end = begin + kChunk;
  if (end >= s.rows || s.keys[end] != s.keys[end - 1]) return;
  const uint32_t key = s.keys[end];
  const bool began_before = begin > 0 && s.keys[begin - 1] == key;
  if (began_before || key == s.table_rows) return;
  int parts = 1;  // of the run: one in each chunk that begins with its key, and the first
  for (int more = 32; more == 32; parts += more) {
    const int64_t next = (chunk + parts + threadIdx.x) * kChunk;
    const bool same = next < s.rows && s.keys[next] == key;
    more = __ffs(int(~__ballot_sync(~0u, same))) - 1;
    if (more < 0) more = 32;
  }
  Loaded<D, V> old;
  if (add) old = columns.read(into, key);
  A sum[V] = {};
  add_all<A>(parts, sum, [&](int i) { return columns.read(i == 0 ? tails : heads, chunk + i); });
  add_values(old, sum);
  columns.write(into, key, sum);
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

template <int V, class T, class D>
void add_sorted(Device device, const SortedRows& s, int64_t length, const T* dy, D* into,
                bool add) {
  using A = Compute<T>;
  cudaStream_t stream = cuda::stream(device);
  const int64_t chunks = (s.rows + kChunk - 1) / kChunk;
  Tensor parts = device_array<A>(2 * chunks * length, device);
  A *heads = static_cast<A*>(parts.raw()), *tails = heads + chunks * length;
  const dim3 block(32, 8);
  const int64_t columns = blocks_for(length, 32 * V);
  add_chunks_kernel<V>
      <<<unsigned(chunks * columns), block, 0, stream>>>(s, dy, length, into, add, heads, tails);
  cuda::check_launch("add rows");
  cuda::launch_early<add_parts_kernel<V, D, A>>(
      unsigned(blocks_for(chunks, block.y) * columns), block, stream, s, length, into, add,
      static_cast<const A*>(heads), static_cast<const A*>(tails));
}

template <class T, class D>
void cuda_add(Device device, const char* op, const RowMap& m, const Keys& k, const T* dy, D* into,
              bool add) {
  constexpr int V = 16 / sizeof(T);
  if (!add) cuda::fill_bytes(device, into, 0, size_t(m.table_rows() * m.length) * sizeof(D));
  if (m.rows() == 0 || m.length == 0) return;
  Tensor memory;
  const SortedRows s = sort_rows(device, op, m, k, memory);
  const bool wide = m.length % V == 0 && aligned_to(16, dy) && aligned_to(V * sizeof(D), into);
  wide ? add_sorted<V>(device, s, m.length, dy, into, add)
       : add_sorted<1>(device, s, m.length, dy, into, add);
}

}  // namespace gradus::detail

#endif
