#pragma once
// The backward of norms on a GPU. A row has one pack a thread, or two: there are two or three sums for
// each column, too. While a row is worked on, the next ones are on their way.
#include "core/early_start.h"
#include "ops/norm_cuda.h"

#if defined(__CUDACC__)

namespace gradus::norm {

/// One sum for each column that a thread owns: in registers where its row is, else in memory.
template <class A, int kSlots>
struct Columns {
  A held[kSlots] = {};
  __device__ Columns(A*, int64_t) {}
  __device__ A& operator[](int64_t slot) { return held[slot]; }
};
template <class A>
struct Columns<A, 0> {
  A* at;
  __device__ Columns(A* to, int64_t n) : at(to) {
    for (int64_t i = threadIdx.x; at && i < n; i += blockDim.x) at[i] = 0;
  }
  __device__ A& operator[](int64_t column) { return at[column]; }
};

/// The sums of this thread's columns to `shared` (rows of the block, sums, n), as the sum number k.
template <class R, class A, int kSlots>
__device__ void leave_sums(const Columns<A, kSlots>& sum, A* shared, int64_t n, int k, int sums) {
  constexpr int V = R::V, kWide = 16 / int(sizeof(A));
  A* row = shared + (int64_t(threadIdx.y) * sums + k) * n;
#pragma unroll
  for (int slot = 0; slot < kSlots; slot += kWide) {
    const int column = R::first(slot / V) + slot % V;
    if (column >= n) continue;
    Pack<A, kWide> pack;
#pragma unroll
    for (int i = 0; i < kWide; ++i) pack.v[i] = sum.held[slot + i];
    *reinterpret_cast<Pack<A, kWide>*>(row + column) = pack;
  }
}
/// part (count) ← the rows of the block, one after the other.
template <class A>
__device__ void add_rows_of_block(const A* shared, A* part, int64_t count) {
  const int threads = int(blockDim.x * blockDim.y);
  for (int64_t i = threadIdx.y * blockDim.x + threadIdx.x; i < count; i += threads) {
    A sum = shared[i];
    for (int y = 1; y < int(blockDim.y); ++y) sum += shared[y * count + i];
    part[i] = sum;
  }
}

/// dγ and dβ of a row, and the function that makes dx of it.
template <class T, class R, class C>
__device__ Differentiate<Compute<T>> differentiate_row(const Backward<T>& b,
                                                       Moments<Compute<T>> row, const R& x,
                                                       const R& dy, const R& gamma, C& dgamma,
                                                       C& dbeta, RowSums<Compute<T>>& sum_row) {
  using A = Compute<T>;
  A sums[2] = {0, 0};  // of g, and of g ⊙ x̂
  x.each(
      [&](auto slot, A x_i, A dy_i, A gamma_i) {
        const A normal = (x_i - row.mean) * row.r;
        sums[0] += gamma_i * dy_i;
        sums[1] += gamma_i * dy_i * normal;
        dgamma[slot] += dy_i * normal;
        dbeta[slot] += dy_i;
      },
      dy, gamma);
  sum_row(sums);
  return {row, b.centred ? sums[0] * b.share : A(0), sums[1] * b.share};
}

/// dx of row r and, if the mask drops, the gradient of the branch; adds that of its bias.
template <Adds kAdds, class T, class R, class C>
__device__ void write_row(const Backward<T>& b, int64_t r, const Differentiate<Compute<T>>& d,
                          const R& x, const R& dy, const R& gamma, const R& ds, C& dbias) {
  using A = Compute<T>;
  const bool drops = kAdds == Adds::dropped && b.mask.drops();
  const bool sums = kAdds == Adds::branch || (kAdds == Adds::dropped && !drops && b.sums > 2);
  auto dx = [&](auto slot, int64_t, A x_i, A dy_i, A gamma_i, A ds_i) {
    const A v = d(x_i, dy_i, gamma_i) + ds_i;
    if (sums) dbias[slot] += v;
    return v;
  };
  x.put(b.dx + r * b.n, dx, dy, gamma, ds);
  if (!drops) return;
  RowMask<T, R::kSlots> mask(b, r);
  auto dbranch = [&](auto slot, int64_t i, A x_i, A dy_i, A gamma_i, A ds_i) {
    const A v = mask(i, d(x_i, dy_i, gamma_i) + ds_i);
    dbias[slot] += v;
    return v;
  };
  x.put(b.dbranch + r * b.n, dbranch, dy, gamma, ds);
}

template <class T>
__global__ void __launch_bounds__(512) streamed_backward_kernel(const Backward<T> b) {
  using A = Compute<T>;
  using R = Row<T, 0>;
  A* part = b.parts + blockIdx.x * b.sums * b.n;
  Columns<A, 0> dgamma(part, b.n), dbeta(part + b.n, b.n),
      dbias(b.sums > 2 ? part + 2 * b.n : nullptr, b.n);
  const R gamma(b.gamma, b.n);
  RowSums<A> sum_row;
  for (int64_t r = first_row(); r < b.rows; r += row_step()) {
    sync_row();  // the row before may have given a column to another thread
    const R x(b.x + r * b.n, b.n), dy(b.dy + r * b.n, b.n),
        ds(b.ds ? b.ds + r * b.n : nullptr, b.n);
    const auto d = differentiate_row(b, b.moments[r], x, dy, gamma, dgamma, dbeta, sum_row);
    write_row<Adds::dropped>(b, r, d, x, dy, gamma, ds, dbias);
  }
}

template <int kPacks>
constexpr int kBackwardThreads = kPacks == 1 ? 768 : 512;
template <Adds kAdds, class T, int kPacks, bool kFull>
using BackwardRows =
    RowsAhead<T, kPacks, kFull, kAdds == Adds::nothing ? 2 : 3, kBackwardThreads<kPacks>>;

template <Adds kAdds, class T, int kPacks, bool kFull>
__global__ void __launch_bounds__(kBackwardThreads<kPacks>, 1)
    backward_kernel(const Backward<T> b) {
  using A = Compute<T>;
  using R = Row<T, kPacks, kFull>;
  constexpr int kInputs = kAdds == Adds::nothing ? 2 : 3;
  extern __shared__ __align__(16) unsigned char shared[];
  const T* inputs[kInputs] = {b.x, b.dy};
  if constexpr (kInputs == 3) inputs[2] = b.ds ? b.ds : b.x;  // fetched for nothing
  BackwardRows<kAdds, T, kPacks, kFull> ahead(shared, inputs, b.rows, b.n);
  A* part = b.parts + blockIdx.x * b.sums * b.n;
  Columns<A, R::kSlots> dgamma(part, b.n), dbeta(part, b.n), dbias(part, b.n);
  RowSums<A> sum_row;
  int64_t r = first_row();
  Moments<A> next{};
  if (r < b.rows) next = b.moments[r];
  for (; r < b.rows; r += row_step()) {
    const Moments<A> row = next;
    if (r + row_step() < b.rows) next = b.moments[r + row_step()];
    ahead.step();
    const R x = ahead.row(0);
    const auto d =
        differentiate_row(b, row, x, ahead.row(1), R(b.gamma, b.n), dgamma, dbeta, sum_row);
    // dy and γ once more: the compiler would keep what it made of them, in registers that it lacks.
    write_row<kAdds>(b, r, d, x, ahead.row(1), R(b.gamma, b.n),
                     kInputs == 3 && b.ds ? ahead.row(kInputs - 1) : R(nullptr, b.n), dbias);
  }
  cuda::let_next_start();  // the sum of the parts, where it does not wait for others
  __syncthreads();         // everyone is done with what was fetched
  A* memory = reinterpret_cast<A*>(shared);
  constexpr int kSums = kInputs;  // dγ, dβ, and dbias where there is a branch
  leave_sums<R>(dgamma, memory, b.n, 0, kSums);
  leave_sums<R>(dbeta, memory, b.n, 1, kSums);
  if constexpr (kSums == 3) leave_sums<R>(dbias, memory, b.n, 2, kSums);
  __syncthreads();
  add_rows_of_block(memory, part, kSums * b.n);
}

struct BackwardLaunch {
  int packs;  // 0: streamed
  bool full;
  dim3 threads;
  unsigned blocks;
};

/// A block a multiprocessor, of the 132 of an H200. Not asked of the device: the number of parts, and
/// so the last bits of the sums, would differ between machines.
template <class T>
BackwardLaunch backward_launch(const Backward<T>& b) {
  constexpr unsigned kMultiprocessors = 132;
  const bool held = is_held<T>(b.n, b.first_element, {b.x, b.dy, b.gamma, b.dx, b.ds, b.dbranch});
  const unsigned one = row_width<T>(b.n, 1), two = row_width<T>(b.n, 2);
  auto fills = [&](unsigned width, int packs) {
    return b.n == int64_t(width) * packs * kPackSize<T>;
  };
  BackwardLaunch l{0, false, dim3(std::min(512u, one)), 4 * kMultiprocessors};
  if (held && one < 128)
    l = {1, fills(one, 1), rows_of(one, kBackwardThreads<1>), kMultiprocessors};
  else if (held && two <= 512)
    l = {2, fills(two, 2), rows_of(two, kBackwardThreads<2>), kMultiprocessors};
  const int64_t blocks = (b.rows + l.threads.y - 1) / l.threads.y;
  l.blocks = unsigned(std::min<int64_t>(l.blocks, blocks));
  return l;
}

template <class T>
int64_t parts_cuda(const Backward<T>& b) {
  return backward_launch(b).blocks;
}

template <Adds kAdds, class T>
void backward_cuda(Device device, const Backward<T>& b) {
  cudaStream_t stream = cuda::stream(device);
  const BackwardLaunch l = backward_launch(b);
  auto held = [&]<int kPacks, bool kFull>() {
    auto kernel = backward_kernel<kAdds, T, kPacks, kFull>;
    // the sums of the rows fit in, too
    const size_t bytes = BackwardRows<kAdds, T, kPacks, kFull>::kBytes;
    allow_shared(kernel, bytes);
    kernel<<<l.blocks, l.threads, bytes, stream>>>(b);
  };
  if constexpr (sizeof(T) < 8) {
    if (l.packs == 1)
      l.full ? held.template operator()<1, true>() : held.template operator()<1, false>();
    if (l.packs == 2)
      l.full ? held.template operator()<2, true>() : held.template operator()<2, false>();
  }
  if (l.packs == 0) streamed_backward_kernel<<<l.blocks, l.threads, 0, stream>>>(b);
  cuda::check_launch("norm backward kernel");
}

}  // namespace gradus::norm

#endif
