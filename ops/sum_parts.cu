#include "ops/sum_parts.h"

#include <limits>
#include <memory>
#include <utility>

#include "autograd/engine.h"
#include "core/cuda.h"
#include "core/dtype.h"
#include "core/early_start.h"
#include "core/elementwise.h"
#include "core/scope.h"

namespace gradus {
namespace {

/// to ← β to + Σ_p from[p, ·] for `number` rows of `n` that are `step` apart; β is 0 or 1, and with 0 `to` is
/// not read.
struct Sum {
  const void* from;
  void* to;
  int64_t step;
  int number, n;
  int block;  // the first of the kernel's that does it
  DType dtype;
  bool add;

  template <class T, class A>
  GRADUS_HD void write_as(int64_t i, A sum) const {
    T* t = static_cast<T*>(to) + i;
    *t = T(Compute<T>(add ? sum + A(*t) : sum));
  }
  template <class A>
  GRADUS_HD void write(int64_t i, A sum) const {
    switch (dtype) {
      case DType::f64:
        return write_as<double>(i, sum);
      case DType::f32:
        return write_as<float>(i, sum);
      case DType::bf16:
        return write_as<bf16>(i, sum);
      default:
        return write_as<f16>(i, sum);
    }
  }
};

/// One kernel's: GPT-2 124M has 98.
struct Sums {
  static constexpr int kMost = 100;
  int number = 0;
  Sum at[kMost];
};

template <class A>
void sum_cpu(const Sums& sums) {
  for (int k = 0; k < sums.number; ++k) {
    const Sum& s = sums.at[k];
    std::vector<A> sum(size_t(s.n), A(0));
    for (int64_t p = 0; p < s.number; ++p) {
      const A* part = static_cast<const A*>(s.from) + p * s.step;
      for (int i = 0; i < s.n; ++i) sum[size_t(i)] += part[i];
    }
    for (int i = 0; i < s.n; ++i) s.write(i, sum[size_t(i)]);
  }
}

constexpr int kColumns = 32, kWarps = 8;  // of a block

#if defined(__CUDACC__)

/// A block has 32 columns of one of the sums. Warp w adds every kWarps-th part from w on, of which up to kBatch
/// are asked for at once; the first warp adds what they have.
template <class A>
__global__ void __launch_bounds__(kColumns* kWarps)
    sum_parts_kernel(__grid_constant__ const Sums all) {
  constexpr int kBatch = 6;
  __shared__ A sums[kWarps][kColumns];
  int low = 0;
  for (int high = all.number; high - low > 1;) {
    const int middle = (low + high) / 2;
    (int(blockIdx.x) < all.at[middle].block ? high : low) = middle;
  }
  const Sum& s = all.at[low];
  const int i = (int(blockIdx.x) - s.block) * kColumns + int(threadIdx.x);
  const A* from = static_cast<const A*>(s.from) + threadIdx.y * s.step + i;
  cuda::wait_for_before();
  A sum = 0;
  for (int left = i < s.n ? s.number - int(threadIdx.y) : 0; left > 0; left -= kWarps * kBatch) {
    A values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      values[k] = kWarps * k < left ? from[kWarps * k * s.step] : A(0);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) sum += values[k];
    from += kWarps * kBatch * s.step;
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || i >= s.n) return;
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp][threadIdx.x];
  s.write(i, sum);
}

#endif

/// Sums of parts of one type on one device; see Note [sums that wait]. The memory that they are added to calls
/// run() before anybody else uses it, and before it goes.
class Waiting {
 public:
  Waiting(Device device, DType dtype) : device_(device), dtype_(dtype) {}
  bool takes(Device device, DType dtype) const {
    return device == device_ && dtype == dtype_ && sums_.number < Sums::kMost;
  }
  void add(const Tensor& parts, int64_t k, const Tensor& to, bool add) {
    void* const target = to.raw();  // what waits for it already comes first
    const int64_t n = parts.size(2), step = parts.size(1) * n;
    if (n == 0) return;
    constexpr int64_t kLimit = std::numeric_limits<int>::max() - 64;
    check(parts.size(0) <= kLimit && n <= kLimit, "sum_parts: too many parts, ", parts.describe());
    const char* from = static_cast<const char*>(parts.raw()) + k * n * size_of(dtype_);
    sums_.at[sums_.number++] = {.from = from,
                                .to = target,
                                .step = step,
                                .number = int(parts.size(0)),
                                .n = int(n),
                                .block = blocks_,
                                .dtype = to.dtype(),
                                .add = add};
    blocks_ += int((n + kColumns - 1) / kColumns);
    parts_.push_back(parts);
  }
  /// All of them, once.
  void run() {
    if (sums_.number == 0) return;
    const Scope scope("sum_parts", Phase::backward);
    const Sums sums = std::exchange(sums_, {});
    const int blocks = std::exchange(blocks_, 0);
    dispatch_floating("sum_parts", dtype_, [&]<class A>() {
      if constexpr (sizeof(A) >= 4) launch<A>(sums, blocks);
    });
    parts_.clear();
  }

 private:
  template <class A>
  void launch(const Sums& sums, [[maybe_unused]] int blocks) {
#if defined(__CUDACC__)
    if (device_.is_cuda())
      return cuda::launch_early<sum_parts_kernel<A>>(dim3(unsigned(blocks)), dim3(kColumns, kWarps),
                                                     cuda::stream(device_), sums);
#endif
    check(!device_.is_cuda(), "sum_parts: this file was compiled without CUDA");
    sum_cpu<A>(sums);
  }

  Device device_;
  DType dtype_;
  Sums sums_;
  int blocks_ = 0;
  std::vector<Tensor> parts_;
};

/// For this type and device, in the backward that runs in this thread.
std::shared_ptr<Waiting> waiting_for(Device device, DType dtype) {
  thread_local std::shared_ptr<Waiting> current;
  if (!current || !current->takes(device, dtype)) {
    current = std::make_shared<Waiting>(device, dtype);
    detail::at_end_of_backward([mine = current] {
      current.reset();  // first: nothing waits in it any more, even if a launch fails
      mine->run();
    });
  }
  return current;
}

}  // namespace

std::vector<Tensor> sum_parts(const Tensor& parts, DType dtype, const std::vector<Need>& needs) {
  std::vector<Tensor> results(needs.size());
  Waiting now(parts.device(), parts.dtype());
  for (size_t k = 0; k < needs.size(); ++k) {
    const Need& need = needs[k];
    if (!need) continue;
    if (!need.into || !need.into->buffer.is_contiguous()) {
      results[k] = empty({parts.size(2)}, dtype, parts.device());
      now.add(parts, int64_t(k), results[k], false);
      continue;
    }
    const Tensor& to = need.into->buffer;
    to.will_write("sum_parts");
    const bool add = need.into->beta() != 0;
    if (!detail::is_backward_running()) {
      now.add(parts, int64_t(k), to, add);
      continue;
    }
    const std::shared_ptr<Waiting> later = waiting_for(parts.device(), parts.dtype());
    later->add(parts, int64_t(k), to, add);
    to.join_before_use([later] { later->run(); });
  }
  now.run();
  return results;
}

}  // namespace gradus
