#pragma once
// y = f(a, b) on a GPU, where b is repeated: a (rows, n), b (n). Positions that are added to the tokens of
// every sequence, a bias that is added to every row. The general walk (core/elementwise.h) finds the place
// of each element by divisions; here a thread keeps its 16 bytes of b and goes down the rows:
//
//   b     ▭▭▭▭▭▭▭▭ ▭▭▭▭▭▭▭▭ …       thread t has pack t
//   a   0 ▭▭▭▭▭▭▭▭ ▭▭▭▭▭▭▭▭ …
//       1 ▭▭▭▭▭▭▭▭ ▭▭▭▭▭▭▭▭ …       the rows are spread over gridDim.y blocks
#include "autograd/tensor.h"
#include "core/elementwise.h"

namespace gradus {

#if defined(__CUDACC__)

template <int V, class T, class F>
__global__ void __launch_bounds__(256)
    repeated_kernel(int64_t rows, int64_t packs, F f, T* y, const T* a, const T* b) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= packs) return;
  const Pack<T, V> right = *reinterpret_cast<const Pack<T, V>*>(b + i * V);
#pragma unroll 4
  for (int64_t r = blockIdx.y; r < rows; r += gridDim.y) {
    const int64_t at = (r * packs + i) * V;
    const Pack<T, V> left = *reinterpret_cast<const Pack<T, V>*>(a + at);
    Pack<T, V> out;
#pragma unroll
    for (int j = 0; j < V; ++j) out.v[j] = T(f(Compute<T>(left.v[j]), Compute<T>(right.v[j])));
    *reinterpret_cast<Pack<T, V>*>(y + at) = out;
  }
}

#endif

/// y ← f(a, b) if the operands lie so and this is a GPU. Returns whether it was done.
template <class T, class F>
bool map_repeated(F f, const Tensor& y, const Tensor& a, const Tensor& b) {
#if defined(__CUDACC__)
  constexpr int V = 16 / int(sizeof(T));
  const int64_t n = b.numel(), rows = n > 0 ? a.numel() / n : 0;
  bool fits = y.device().is_cuda() && rows > 1 && n % V == 0 && a.shape() == y.shape() &&
              a.is_contiguous() && b.is_contiguous();
  int64_t matched = 1;
  for (int d = 1; fits && matched < n; ++d) {  // b has the last dimensions of a
    fits = d <= b.rank() && b.size(-d) == a.size(-d);
    if (fits) matched *= a.size(-d);
  }
  for (const Tensor* t : {&y, &a, &b}) fits = fits && aligned_to(16, t->raw());
  if (!fits) return false;
  const int64_t packs = n / V, across = (packs + 255) / 256;
  const int64_t down =
      std::min(rows, (16 * cuda::multiprocessors(y.device()) + across - 1) / across);
  const dim3 grid(unsigned(across), unsigned(std::min<int64_t>(down, 65535)));
  repeated_kernel<V><<<grid, 256, 0, cuda::stream(y.device())>>>(
      rows, packs, f, y.data<T>(), static_cast<const T*>(a.data<T>()),
      static_cast<const T*>(b.data<T>()));
  cuda::check_launch("repeated operand");
  return true;
#else
  (void)f, (void)y, (void)a, (void)b;
  return false;
#endif
}

}  // namespace gradus
