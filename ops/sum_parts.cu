#include "ops/sum_parts.h"

#include "core/cuda.h"
#include "core/dtype.h"
#include "core/early_start.h"
#include "core/elementwise.h"

namespace gradus {
namespace {

constexpr int kMostSums = 3;

/// to ← β to + sum; β is 0 or 1, and with 0 `to` is not read.
template <class A>
struct Target {
  void* to = nullptr;  // null: nobody wants it
  DType dtype{};
  bool add = false;

  template <class T>
  GRADUS_HD void write_as(int64_t i, A sum) const {
    T* t = static_cast<T*>(to) + i;
    *t = T(Compute<T>(add ? sum + A(*t) : sum));
  }
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

/// parts (number, sums, n)
template <class A>
struct SumOfParts {
  int64_t number, sums, n;
  const A* parts;
  Target<A> targets[kMostSums];
};

template <class A>
void sum_cpu(const SumOfParts<A>& s) {
  std::vector<A> sum(static_cast<size_t>(s.n));
  for (int64_t k = 0; k < s.sums; ++k) {
    if (!s.targets[k].to) continue;
    std::fill(sum.begin(), sum.end(), A(0));
    for (int64_t p = 0; p < s.number; ++p) {
      const A* part = s.parts + (p * s.sums + k) * s.n;
      for (int64_t i = 0; i < s.n; ++i) sum[size_t(i)] += part[i];
    }
    for (int64_t i = 0; i < s.n; ++i) s.targets[k].write(i, sum[size_t(i)]);
  }
}

#if defined(__CUDACC__)

/// A block has 32 columns of one of the sums. Warp w adds every 32nd part from w on, and then, of column w,
/// what the 32 warps have. Up to kBatch parts a warp are asked for at once: those of a block a multiprocessor.
template <class A>
__global__ void __launch_bounds__(1024) sum_parts_kernel(__grid_constant__ const SumOfParts<A> s) {
  constexpr int kBatch = 5;
  __shared__ A sums[32][33];
  const Target<A>& target = s.targets[blockIdx.y];
  if (!target.to) return;
  const int64_t first = int64_t(blockIdx.x) * 32, i = first + threadIdx.x;
  const A* from = s.parts + (threadIdx.y * s.sums + blockIdx.y) * s.n + i;
  const int64_t step = 32 * s.sums * s.n;
  cuda::wait_for_before();
  A sum = 0;
  for (int left = i < s.n ? int(s.number) - int(threadIdx.y) : 0; left > 0; left -= 32 * kBatch) {
    A values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) values[k] = 32 * k < left ? from[k * step] : A(0);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) sum += values[k];
    from += kBatch * step;
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = sums[threadIdx.x][threadIdx.y];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  if (threadIdx.x == 0 && first + threadIdx.y < s.n) target.write(first + threadIdx.y, sum);
}

#endif

template <class A>
void sum_in(Device device, const SumOfParts<A>& s) {
#if defined(__CUDACC__)
  if (device.is_cuda()) {
    dim3 grid(unsigned((s.n + 31) / 32), unsigned(s.sums));
    return cuda::launch_early<sum_parts_kernel<A>>(grid, dim3(32, 32), cuda::stream(device), s);
  }
#endif
  check(!device.is_cuda(), "sum_parts: this file was compiled without CUDA");
  sum_cpu(s);
}

}  // namespace

std::vector<Tensor> sum_parts(const Tensor& parts, DType dtype, const std::vector<Need>& needs) {
  std::vector<Tensor> results(needs.size());
  const int64_t n = parts.size(2);
  dispatch_floating("sum_parts", parts.dtype(), [&]<class A>() {
    if constexpr (sizeof(A) >= 4) {
      SumOfParts<A> s{parts.size(0), parts.size(1), n, parts.data<A>(), {}};
      bool any = false;
      for (size_t k = 0; k < needs.size(); ++k) {
        const Need& need = needs[k];
        if (!need) continue;
        const bool into = need.into && need.into->buffer.is_contiguous();
        const bool add = into && need.into->beta() != 0;
        const Tensor to =
            into ? need.into->buffer : (results[k] = empty({n}, dtype, parts.device()));
        to.will_write("sum_parts");
        s.targets[k] = {to.raw(), to.dtype(), add};
        any = true;
      }
      if (any && n > 0) sum_in(parts.device(), s);
    }
  });
  return results;
}

}  // namespace gradus
