#pragma once
// Cross-entropy on a GPU. With the gradient at once, a row waits in shared memory between the pass that
// finds m and s and the pass that writes dz over z; a row of 50,000 bf16 is 100 KB, so two blocks fit a
// multiprocessor. Each thread works on packs of its own, which it fetches itself:
//
//   pass 1   row r      ████████████████   m, s                 wait for what pass 2 of row r − 1 fetched
//   pass 2   row r      ████░░░░░░░░░░░░   dz to memory
//            row r + 1  ▒▒▒▒               fetched where a pack has become free
//
// so nothing but m and s is passed between threads, and memory is busy during both passes.
#include "ops/cross_entropy.h"
#include "ops/rows_ahead.h"

#if defined(__CUDACC__)

namespace gradus::entropy {

/// The m and s of a thread: it keeps the maximum of what it has seen and s relative to it. Starting at
/// the lowest number instead of −∞ avoids ∞ − ∞.
template <class T>
struct Running {
  using A = Compute<T>;
  A m = std::numeric_limits<A>::lowest(), s = 0, sum_z = 0;

  __device__ void raise(A z) {
    if (!(z > m)) return;
    s *= exp_for<T>(m - z);  // a larger z makes s smaller
    m = z;
  }
  /// raise(z), and z added, by one power and without a branch.
  __device__ void take(A z) {
    const A e = exp_for<T>(z > m ? m - z : z - m);
    s = z > m ? s * e + 1 : s + e;
    m = z > m ? z : m;
  }

  /// All threads get the same.
  __device__ void join() {
    A largest[1] = {m}, sums[2] = {s, sum_z};
    join_row(Largest{}, largest);
    sums[0] *= exp_for<T>(m - largest[0]);  // NaN if the largest is ∞
    join_row(Sum{}, sums);
    m = largest[0], s = sums[0], sum_z = sums[1];
  }
};

/// Row r has no loss: its target is ignored or invalid.
template <class T, class I>
__device__ void skip_row(const Rows<T, I>& in, int64_t r, cuda::DeviceError* error) {
  if (in.dz)
    for (int64_t j = threadIdx.x; j < in.n; j += blockDim.x) in.dz[r * in.n + j] = T(Compute<T>(0));
  if (threadIdx.x != 0) return;
  in.write_uncounted(r);
  if (in.counts(r)) cuda::report_index(error, "cross_entropy", r, int64_t(in.target[r]), in.n);
}

/// Rows read from memory in each pass.
template <class T, class I>
__global__ void __launch_bounds__(256)
    streamed_kernel(const Rows<T, I> in, cuda::DeviceError* error) {
  using A = Compute<T>;
  for (int64_t r = first_row(); r < in.rows; r += row_step()) {
    if (!in.has_loss(r)) {
      skip_row(in, r, error);
      continue;
    }
    const Row<T, 0> row(in.z + r * in.n, in.n);
    const int64_t target = in.target[r];
    const A z_t = A(in.z[r * in.n + target]);
    Running<T> sums;
    row.each([&](int64_t, A z) {
      sums.take(z);
      sums.sum_z += z;
    });
    sums.join();
    if (threadIdx.x == 0) in.write(r, sums.m, sums.s, sums.sum_z, z_t);
    if (!in.dz) continue;
    const Gradient<A> gradient(in, sums.s);
    row.store(in.dz + r * in.n,
              [&](int64_t j, A z) { return gradient(exp_for<T>(z - sums.m), j == target); });
  }
}

inline constexpr int kStages = 4;  // in which a row is fetched

/// Row r as packs of 16 bytes. Of those a thread has t, t + blockDim.x, … What is below `kept` is in
/// shared memory between the passes; the rest, if the row is too long, is read from memory twice. If n
/// is odd, there are single entries before the first pack and behind the last: one for a thread.
template <class T>
class HeldRow {
 public:
  static constexpr int V = kPackSize<T>;

  __device__ HeldRow(uint4* memory, int kept, const T* z, int64_t r, int64_t n)
      : memory_(memory), kept_(kept), row_(z + r * n) {
    head_ = ::min(int(n), (V - int(r * n % V)) % V);
    packs_ = (int(n) - head_) / V;
    singles_ = int(n) - packs_ * V;
    const int own = (packs_ + int(blockDim.x) - 1) / int(blockDim.x);
    per_stage_ = (own + kStages - 1) / kStages * int(blockDim.x);
  }
  __device__ void fetch_stage(int stage) const {
    const int end = ::min(kept_, end_of(stage));
    for (int i = begin_of(stage); i < end; i += int(blockDim.x))
      fetch(shared_address(memory_ + i), row_ + column(i));
    end_group();
  }
  /// f(i, pack) on each pack of a stage. Each is read before f is called.
  template <class F>
  __device__ void each_pack(int stage, F f) const {
    const int end = end_of(stage), end_kept = ::min(kept_, end);
    int i = begin_of(stage);
    for (; i < end_kept; i += int(blockDim.x)) f(i, memory_[i]);
#pragma unroll 1
    for (; i < end; i += int(blockDim.x)) f(i, *reinterpret_cast<const uint4*>(row_ + column(i)));
  }
  __device__ int column(int pack) const { return head_ + pack * V; }
  /// The column of this thread's single entry, or −1.
  __device__ int single() const {
    const int t = int(threadIdx.x);
    return t >= singles_ ? -1 : t < head_ ? t : t + packs_ * V;
  }
  __device__ Compute<T> entry(int64_t column) const { return Compute<T>(row_[column]); }

 private:
  __device__ int begin_of(int stage) const { return stage * per_stage_ + int(threadIdx.x); }
  __device__ int end_of(int stage) const { return ::min(packs_, (stage + 1) * per_stage_); }

  uint4* memory_;
  int kept_, head_, packs_, singles_, per_stage_;
  const T* row_;
};

/// e^{z − m} for z ≤ m, and for results that are rounded to T: as 2^{z log₂e − m log₂e}, in two instructions.
/// Where m is so large that the product might overflow, z is m or e^{z − m} is 0; so is 2^{z − m}.
template <class T>
struct PowerOf {
  using A = Compute<T>;
  A m, factor, product;
  __device__ explicit PowerOf(A m)
      : m(m), factor(fabs(m) < A(1e38) ? A(1.44269504) : A(1)), product(m * factor) {}
  __device__ A operator()(A z) const {
    if constexpr (sizeof(T) == 2) {
      return exp2_fast(fmaf(z, factor, -product));
    } else {
      return math::exp(z - m);
    }
  }
};

template <class T, class I>
__global__ void __launch_bounds__(1024)
    held_kernel(const Rows<T, I> in, int kept, cuda::DeviceError* error) {
  using A = Compute<T>;
  constexpr int V = kPackSize<T>;
  extern __shared__ uint4 memory[];
  auto row_at = [&](int64_t r) { return HeldRow<T>(memory, kept, in.z, r, in.n); };
  int64_t r = blockIdx.x;
  bool live = in.has_loss(r);
  for (int stage = 0; live && stage < kStages; ++stage) row_at(r).fetch_stage(stage);
  for (int64_t next; r < in.rows; r = next) {
    next = r + gridDim.x;
    const bool next_live = next < in.rows && in.has_loss(next);
    auto fetch_next = [&](int stage) {
      if (next_live) row_at(next).fetch_stage(stage);
    };
    if (!live) {
      skip_row(in, r, error);
      for (int stage = 0; stage < kStages; ++stage) fetch_next(stage);
      live = next_live;
      continue;
    }
    const HeldRow<T> row = row_at(r);
    const int single = row.single();
    const A z_single = single >= 0 ? row.entry(single) : A(0), z_t = row.entry(in.target[r]);
    Running<T> sums;
    auto pass = [&](int stage) {
      row.each_pack(stage, [&](int, const uint4& pack) {
        A largest = element<T>(pack, 0);
#pragma unroll
        for (int j = 1; j < V; ++j) largest = Largest{}(largest, element<T>(pack, j));
        sums.raise(largest);
        const PowerOf<T> power(sums.m);
#pragma unroll
        for (int j = 0; j < V; ++j) sums.s += power(element<T>(pack, j));
        if (in.smoothing > 0)
#pragma unroll
          for (int j = 0; j < V; ++j) sums.sum_z += element<T>(pack, j);
      });
    };
    wait_for_all_but<3>(), pass(0);
    wait_for_all_but<2>(), pass(1);
    wait_for_all_but<1>(), pass(2);
    wait_for_all_but<0>(), pass(3);
    if (single >= 0) sums.take(z_single), sums.sum_z += z_single;
    sums.join();
    if (threadIdx.x == 0) in.write(r, sums.m, sums.s, sums.sum_z, z_t);
    const Gradient<A> gradient(in, sums.s);
    const PowerOf<T> power(sums.m);
    const int target = int(in.target[r]);
    T* dz = in.dz + r * in.n;
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      row.each_pack(stage, [&](int i, const uint4& pack) {
        Pack<T, V> out;
#pragma unroll
        for (int j = 0; j < V; ++j) out.v[j] = T(gradient(power(element<T>(pack, j)), false));
        if (const int at = target - row.column(i); at >= 0 && at < V)
#pragma unroll
          for (int j = 0; j < V; ++j)
            if (j == at) out.v[j] = T(gradient(power(element<T>(pack, j)), true));
        store_pack(dz + row.column(i), out);
      });
      fetch_next(stage);
    }
    if (single >= 0) dz[single] = T(gradient(exp_for<T>(z_single - sums.m), single == target));
    live = next_live;
  }
}

template <class T, class I>
__global__ void __launch_bounds__(256)
    backward_kernel(const Rows<T, I> in, const RowGradient<Compute<T>> dloss, T* dz) {
  using A = Compute<T>;
  for (int64_t r = first_row(); r < in.rows; r += row_step()) {
    const Row<T, 0> z(in.z + r * in.n, in.n);
    if (in.scale[r].log_sum == -kInfinity<A>)
      z.store(dz + r * in.n, [](int64_t, A) { return A(0); });
    else
      z.store(dz + r * in.n, Differentiate<A>(in, r, dloss(r)));
  }
}

/// One block: thread t takes rows t, t + 1024, …; then the threads are joined.
template <class A, class I>
__global__ void __launch_bounds__(1024) factor_kernel(const Total<A, I> t) {
  double count[1] = {0};
  if (t.mean)
    for (int64_t r = threadIdx.x; r < t.rows; r += blockDim.x)
      count[0] += int64_t(t.target[r]) != t.ignored;
  join_row(Sum{}, count);
  if (threadIdx.x == 0) t.write_factor(count[0]);
}
template <class A, class I>
__global__ void __launch_bounds__(1024) total_kernel(const Total<A, I> t) {
  double sums[2] = {0, 0};
  for (int64_t r = threadIdx.x; r < t.rows; r += blockDim.x) {
    sums[0] += double(t.loss[r]);
    sums[1] += int64_t(t.target[r]) != t.ignored;
  }
  join_row(Sum{}, sums);
  if (threadIdx.x == 0) t.write(sums[0], sums[1]);
}

/// to ← f from, V neighbours a thread. Nothing to do where f = 1 and `to` is `from`.
template <int V, class T>
__global__ void __launch_bounds__(256)
    multiply_kernel(int64_t n, const Compute<T>* factor, const T* from, T* to) {
  using A = Compute<T>;
  const A f = *factor;
  if (f == 1 && from == to) return;
  const int64_t step = int64_t(gridDim.x) * blockDim.x * V;
  for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V; i < n; i += step) {
    Pack<T, V> pack = load_pack<T, V>(from + i);
#pragma unroll
    for (int j = 0; j < V; ++j) pack.v[j] = T(f * A(pack.v[j]));
    store_pack(to + i, pack);
  }
}

template <class T, class I>
void launch_streamed(Device device, const Rows<T, I>& in) {
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = row_launch<T, 0>(in.rows, in.n, 256, 1 << 30, {});
  streamed_kernel<<<l.blocks, l.threads, 0, stream>>>(in, cuda::error_record(device));
}

template <class T, class I>
void launch_held(Device device, const Rows<T, I>& in) {
  constexpr int64_t kMemory = 227 << 10,
                    kOwn = 2 << 10;  // of a multiprocessor; taken by each block
  const int64_t packs = in.n / kPackSize<T>, most = (kMemory - kOwn) / 16;
  const int kept = int(std::min(packs, most));
  const size_t bytes = size_t(kept) * 16;
  int threads = 32;
  const int wanted = int64_t(bytes) > kMemory / 2 - kOwn ? 1024 : 512;
  while (threads < wanted && threads < packs) threads *= 2;
  const int64_t a_processor =
      std::min<int64_t>({1024 / threads, 16, kMemory / (int64_t(bytes) + kOwn)});
  const int64_t blocks = std::min(in.rows, cuda::multiprocessors(device) * a_processor);
  auto kernel = held_kernel<T, I>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
        "cross_entropy: shared memory");
  cudaStream_t stream = cuda::stream(device);
  kernel<<<unsigned(blocks), threads, bytes, stream>>>(in, kept, cuda::error_record(device));
}

template <class T, class I>
void forward_cuda(Device device, const Rows<T, I>& in) {
  const bool packed = in.n % kPackSize<T> == 0 && aligned_to(16, in.z) && aligned_to(16, in.dz);
  in.dz&& packed ? launch_held(device, in) : launch_streamed(device, in);
  cuda::check_launch("cross-entropy kernel");
}

template <class T, class I>
void backward_cuda(Device device, const Rows<T, I>& in, RowGradient<Compute<T>> dloss, T* dz) {
  cudaStream_t stream = cuda::stream(device);
  RowLaunch l = row_launch<T, 0>(in.rows, in.n, 256, 1 << 30, {});
  backward_kernel<<<l.blocks, l.threads, 0, stream>>>(in, dloss, dz);
  cuda::check_launch("cross-entropy backward kernel");
}

template <class A, class I>
void factor_cuda(Device device, const Total<A, I>& t) {
  factor_kernel<<<1, 1024, 0, cuda::stream(device)>>>(t);
  cuda::check_launch("count of targets");
}
template <class A, class I>
void total_cuda(Device device, const Total<A, I>& t) {
  total_kernel<<<1, 1024, 0, cuda::stream(device)>>>(t);
  cuda::check_launch("sum of losses");
}

template <class T>
void multiply_cuda(Device device, int64_t n, const Compute<T>* factor, const T* from, T* to) {
  constexpr int V = kPackSize<T>;
  cudaStream_t stream = cuda::stream(device);
  const bool wide = n % V == 0 && aligned_to(16, from) && aligned_to(16, to);
  const int64_t blocks = (n / (wide ? V : 1) + 255) / 256;
  const auto grid = unsigned(std::min<int64_t>(blocks, 16 * cuda::multiprocessors(device)));
  (wide ? multiply_kernel<V, T> : multiply_kernel<1, T>)<<<grid, 256, 0, stream>>>(n, factor, from,
                                                                                   to);
  cuda::check_launch("product with a number");
}

}  // namespace gradus::entropy

#endif
