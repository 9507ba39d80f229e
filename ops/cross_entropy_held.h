#pragma once
// Rows of logits that are read once, and become their gradient. A row waits in shared memory between the pass
// that finds m and s and the pass that writes dz over z; a row of 50,000 bf16 is 100 KB, so two blocks fit a
// multiprocessor. Each thread works on packs of its own, which it fetches itself:
//
//   pass 1   row r      ████████████████   m, s                 wait for what pass 2 of row r − 1 fetched
//   pass 2   row r      ████░░░░░░░░░░░░   dz to memory
//            row r + 1  ▒▒▒▒               fetched where a pack has become free
//
// so nothing but m and s is passed between threads, and memory is busy during both passes.
#include "ops/cross_entropy_running.h"
#include "ops/rows_ahead.h"

#if defined(__CUDACC__)

namespace gradus::entropy {

inline constexpr int kStages = 4;  // in which a row is fetched

/// Row r as packs of 16 bytes. Of those a thread has t, t + blockDim.x, … What is below `kept` is in
/// shared memory between the passes; the rest, if the row is too long, is read from memory twice. If a row is
/// no number of packs, there are single entries before the first pack and behind the last: one for a thread.
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

}  // namespace gradus::entropy

#endif
