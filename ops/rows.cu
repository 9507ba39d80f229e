#include "ops/rows.h"

#include <cstring>

#include "autograd/accumulate.h"
#include "autograd/gradcheck.h"
#include "core/elementwise.h"

#if defined(__CUDACC__)
#include <cub/device/device_radix_sort.cuh>
#endif

namespace gradus {
namespace {

GRADUS_HD int64_t quotient(int64_t a, int64_t b) {
  return (a | b) >> 32 ? a / b : int64_t(uint32_t(a) / uint32_t(b));
}

/// Reads the ids of a RowMap, of either type.
struct Keys {
  const void* ids;
  bool wide;  // i64
  bool shared;
  int64_t limit, count, inner;

  Keys(const RowMap& m, const Tensor& t)
      : ids(t.raw()),
        wide(t.dtype() == DType::i64),
        shared(m.shared),
        limit(m.limit),
        count(m.count),
        inner(m.inner) {}

  GRADUS_HD int64_t id(int64_t i) const {
    return wide ? static_cast<const int64_t*>(ids)[i] : static_cast<const int32_t*>(ids)[i];
  }
  GRADUS_HD bool valid(int64_t id) const { return uint64_t(id) < uint64_t(limit); }
  /// Where the id of row j stands.
  GRADUS_HD int64_t position(int64_t j) const {
    if (!shared) return j;
    int64_t row = quotient(j, inner);
    return row - quotient(row, count) * count;
  }
  /// The row of the table that has `id` where row j of the result looks.
  GRADUS_HD int64_t key(int64_t j, int64_t id) const {
    int64_t row = quotient(j, inner);
    return (quotient(row, count) * limit + id) * inner + j - row * inner;
  }
};

// ---- CPU

void check_range(const char* op, const Keys& k, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!k.valid(k.id(i))) fail_index(op, i, k.id(i), k.limit);
}

void cpu_take(const RowMap& m, const Keys& k, size_t bytes, const char* x, char* y) {
  parallel_for(m.rows(), kGrain / m.length + 1, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j)
      memcpy(y + size_t(j) * bytes, x + size_t(k.key(j, k.id(k.position(j)))) * bytes, bytes);
  });
}

/// The rows of the result by their place in the table: those of row r are order[begin[r] … begin[r+1]).
struct Runs {
  std::vector<int64_t> begin, order;

  Runs(const RowMap& m, const Keys& k)
      : begin(size_t(m.table_rows()) + 2), order(size_t(m.rows())) {
    auto key = [&](int64_t j) { return size_t(k.key(j, k.id(k.position(j)))); };
    for (int64_t j = 0; j < m.rows(); ++j) ++begin[key(j) + 2];
    for (size_t r = 2; r < begin.size(); ++r) begin[r] += begin[r - 1];
    for (int64_t j = 0; j < m.rows(); ++j) order[size_t(begin[key(j) + 1]++)] = j;
  }
};

constexpr int64_t kColumns = 128, kTableRows = 1024;  // of one piece of work

/// Columns [c, c + n) of row r of the table.
template <class T, class D>
void cpu_add_run(const Runs& runs, int64_t r, int64_t c, int64_t n, int64_t length, const T* dy,
                 D* into, bool add) {
  using A = Compute<T>;
  A sum[kColumns];
  D* to = into + r * length + c;
  int64_t begin = runs.begin[size_t(r)], end = runs.begin[size_t(r) + 1];
  if (begin == end && add) return;
  for (int64_t j = 0; j < n; ++j) sum[j] = add ? A(to[j]) : A(0);
  for (int64_t i = begin; i < end; ++i) {
    const T* row = dy + runs.order[size_t(i)] * length + c;
    for (int64_t j = 0; j < n; ++j) sum[j] += A(row[j]);
  }
  for (int64_t j = 0; j < n; ++j) to[j] = D(sum[j]);
}

/// Pieces are ordered by columns first: threads then share a row that many ids ask for.
template <class T, class D>
void cpu_add(const RowMap& m, const Keys& k, const T* dy, D* into, bool add) {
  Runs runs(m, k);
  int64_t rows = m.table_rows(), blocks = (rows + kTableRows - 1) / kTableRows;
  int64_t tiles = (m.length + kColumns - 1) / kColumns;
  int64_t work = (m.rows() + rows) * m.length, grain = tiles * blocks * kGrain / (work + 1) + 1;
  parallel_for(tiles * blocks, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      int64_t c = i / blocks * kColumns, n = std::min(kColumns, m.length - c);
      int64_t begin = i % blocks * kTableRows, end = std::min(rows, begin + kTableRows);
      for (int64_t r = begin; r < end; ++r) cpu_add_run(runs, r, c, n, m.length, dy, into, add);
    }
  });
}

// ---- CUDA

#if defined(__CUDACC__)

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

int threads_for(int64_t columns) {
  int threads = 1;
  while (threads < columns && threads < 32) threads *= 2;
  return threads;
}
unsigned blocks_for(int64_t n, int64_t block) { return unsigned((n + block - 1) / block); }

template <class Unit>
bool cuda_take_units(Device device, const char* op, const RowMap& m, const Keys& k, int64_t bytes,
                     const void* x, void* y) {
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

void cuda_take(Device device, const char* op, const RowMap& m, const Keys& k, int64_t bytes,
               const void* x, void* y) {
  cuda_take_units<uint4>(device, op, m, k, bytes, x, y) ||
      cuda_take_units<uint32_t>(device, op, m, k, bytes, x, y) ||
      cuda_take_units<uint16_t>(device, op, m, k, bytes, x, y) ||
      cuda_take_units<uint8_t>(device, op, m, k, bytes, x, y);
}

/// (key, position) of each row; invalid ids get the key `table_rows`, which nobody adds.
__global__ void keys_kernel(__grid_constant__ const Keys k, int64_t rows, uint32_t table_rows,
                            uint32_t* keys, uint32_t* positions, OpName op,
                            cuda::DeviceError* error) {
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
constexpr int kChunk = 32;

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
SortedRows sort_rows(Device device, const char* op, const RowMap& m, const Keys& k,
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

#endif

/// Calls f with the types of dy and of `into`: the same, or f32 for narrower dy.
template <class F>
void dispatch_add(const char* op, DType dy, DType into, F f) {
  dispatch_floating(op, dy, [&]<class T>() {
    if (into == dy) return f.template operator()<T, T>();
    if constexpr (sizeof(T) == 2)
      if (into == DType::f32) return f.template operator()<T, float>();
    fail("rows of ", dy, " cannot be added to ", into, " by ", op);
  });
}

struct PutRows {
  static constexpr auto name = "put_rows";
  static constexpr bool recordable = true;
  RowMap map{};
  Saved ids{};
  Tensor forward(const Tensor& dy, const Tensor& i) {
    ids = i;
    Tensor dx = empty(map.table, dy.dtype(), dy.device());
    add_rows(name, map, dx, dy, i, 0);
    return dx;
  }
  Tensors backward(const Tensor& dx);
};

Tensors PutRows::backward(const Tensor& dx) {
  return {apply(TakeRows<kIndexSelect>{.map = map}, dx, *ids), Tensor{}};
}

}  // namespace

void check_ids(const char* op, const Tensor& x, const Tensor& ids) {
  check(bool(x) && bool(ids), op, ": an operand is undefined");
  check(ids.dtype() == DType::i32 || ids.dtype() == DType::i64,
        "integer indices (i32 or i64) are needed by ", op, ", got ", ids.describe());
  check(ids.device() == x.device(), op, ": the indices are ", ids.describe(), " on ", ids.device(),
        ", the tensor is ", x.describe(), " on ", x.device());
}

Tensor take_rows(const char* op, const RowMap& map, const Tensor& x, const Tensor& ids) {
  check_ids(op, x, ids);
  Tensor table = x.is_contiguous() ? x : clone_values(x);
  Tensor list = ids.is_contiguous() ? ids : clone_values(ids);
  Tensor y = empty(map.result, x.dtype(), x.device());
  Keys keys(map, list);
  int64_t bytes = map.length * size_of(x.dtype());
#if defined(__CUDACC__)
  if (x.device().is_cuda()) {
    if (y.numel()) cuda_take(x.device(), op, map, keys, bytes, table.raw(), y.raw());
    return y;
  }
#endif
  check(!x.device().is_cuda(), op, ": this file was compiled without CUDA");
  check_range(op, keys, list.numel());
  if (y.numel())
    cpu_take(map, keys, size_t(bytes), static_cast<const char*>(table.raw()),
             static_cast<char*>(y.raw()));
  return y;
}

bool can_add_rows(const Tensor& into, const Tensor& dy) {
  bool narrow = size_of(dy.dtype()) == 2 && into.dtype() == DType::f32;
  return into.is_contiguous() && into.device() == dy.device() &&
         (narrow || into.dtype() == dy.dtype());
}

void add_rows(const char* op, const RowMap& map, const Tensor& into, const Tensor& dy,
              const Tensor& ids, double beta) {
  check_ids(op, dy, ids);
  Tensor rows = dy.is_contiguous() ? dy : clone_values(dy);
  Tensor list = ids.is_contiguous() ? ids : clone_values(ids);
  Keys keys(map, list);
  if (!dy.device().is_cuda()) check_range(op, keys, list.numel());
  into.will_write(op);
  dispatch_add(op, dy.dtype(), into.dtype(), [&]<class T, class D>() {
    const T* from = rows.data<T>();
#if defined(__CUDACC__)
    if (dy.device().is_cuda())
      return cuda_add(dy.device(), op, map, keys, from, into.data<D>(), beta != 0);
#endif
    check(!dy.device().is_cuda(), op, ": this file was compiled without CUDA");
    cpu_add(map, keys, from, into.data<D>(), beta != 0);
  });
}

Tensor put_rows(const RowMap& map, const Tensor& dy, const Tensor& ids) {
  return apply(PutRows{.map = map}, dy, ids);
}

// ---- examples for the gradient check: three rows into a table of four, and back

static Tensor put_three(const Tensor& dy, const Tensor& ids) {
  return put_rows({.table = {4, 2}, .result = {3, 2}, .limit = 4, .count = 3, .length = 2}, dy,
                  ids);
}
static const Gradcheck checks[] = {
    {"put_rows",
     [](Sampler& s) {
       return put_three(s.normal({3, 2}), s.ids({3}, 4));
     },
     true},
};

}  // namespace gradus
