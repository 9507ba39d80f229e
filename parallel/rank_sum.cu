#include "parallel/rank_sum.h"

#include "core/cuda.h"

namespace gradus::parallel {

#if defined(__CUDACC__)
namespace {

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Vector {
  T at[kWidth];
};

/// n counts vectors.
template <class T, int kWidth>
__global__ void sum_kernel(T* y, Parts parts, int64_t n) {
  using V = Vector<T, kWidth>;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    Compute<T> sum[kWidth] = {};
    for (int k = 0; k < parts.n; ++k) {
      const V x = static_cast<const V*>(parts.from[k])[i];
      for (int j = 0; j < kWidth; ++j) sum[j] += Compute<T>(x.at[j]);
    }
    V out;
    for (int j = 0; j < kWidth; ++j) out.at[j] = T(sum[j]);
    reinterpret_cast<V*>(y)[i] = out;
  }
}

template <class T, int kWidth>
void launch(T* y, const Parts& parts, int64_t n, Device device) {
  if (n == 0) return;
  constexpr int kThreads = 256;
  const int64_t blocks =
      std::min<int64_t>((n + kThreads - 1) / kThreads, 8 * cuda::multiprocessors(device));
  sum_kernel<T, kWidth><<<unsigned(blocks), kThreads, 0, cuda::stream(device)>>>(y, parts, n);
  cuda::check_launch("sum over ranks");
}

bool aligned(const void* y, const Parts& parts) {
  auto bits = reinterpret_cast<uintptr_t>(y);
  for (int k = 0; k < parts.n; ++k) bits |= reinterpret_cast<uintptr_t>(parts.from[size_t(k)]);
  return bits % 16 == 0;
}

template <class T>
void sum_typed(const Tensor& y, Parts parts) {
  constexpr int kWidth = 16 / sizeof(T);
  T* to = static_cast<T*>(y.raw());
  const int64_t n = y.numel(), vectors = aligned(to, parts) ? n / kWidth : 0;
  launch<T, kWidth>(to, parts, vectors, y.device());
  const int64_t done = vectors * kWidth;
  for (int k = 0; k < parts.n; ++k) {
    const void*& from = parts.from[size_t(k)];
    from = static_cast<const T*>(from) + done;
  }
  launch<T, 1>(to + done, parts, n - done, y.device());
}

}  // namespace

void sum_over_ranks(const Tensor& y, const Parts& parts) {
  dispatch_floating("a sum over ranks", y.dtype(), [&]<class T>() { sum_typed<T>(y, parts); });
}

#else

void sum_over_ranks(const Tensor& y, const Parts&) { check_device(y.device()); }

#endif

}  // namespace gradus::parallel
