#pragma once
// y_i = f(a_i, b_i, …) over strided arrays: the loop behind every elementwise op, on both devices.
//
// A Walk is the common index space of N arrays (array 0 is written). Broadcasting is a stride of 0.
// Neighbouring dimensions that every array steps through evenly are merged, so that what is
// contiguous becomes one flat loop, which the compiler vectorises and a GPU reads 16 bytes at a time.
#include "core/cuda.h"
#include "core/dtype.h"
#include "core/parallel_for.h"
#include "core/shape.h"

namespace gradus {

template <int N>
struct Walk {
  int rank = 0;
  bool flat = false;  // every array is contiguous: element i lies at i
  int64_t numel = 1;
  int64_t sizes[Shape::kMaxRank] = {};
  int64_t strides[N][Shape::kMaxRank] = {};

  /// `shapes[k]` broadcasts to shapes[0].
  Walk(const Shape* const (&shapes)[N], const Strides* const (&steps)[N]) {
    const Shape& full = *shapes[0];
    for (int d = 0; d < full.rank(); ++d) {
      numel *= full[d];
      if (full[d] == 1) continue;
      sizes[rank] = full[d];
      for (int k = 0; k < N; ++k) {
        int own = d - full.rank() + shapes[k]->rank();
        strides[k][rank] = own < 0 || (*shapes[k])[own] == 1 ? 0 : (*steps[k])[own];
      }
      if (rank > 0 && evenly_spaced(rank - 1)) {
        sizes[rank - 1] *= sizes[rank];
        for (int k = 0; k < N; ++k) strides[k][rank - 1] = strides[k][rank];
      } else {
        ++rank;
      }
    }
    flat = rank <= 1;
    for (int k = 0; k < N && rank == 1; ++k) flat = flat && strides[k][0] == 1;
  }

  /// Splits a position in the index space into the place it has in each array.
  GRADUS_HD void locate(int64_t i, int64_t (&at)[N]) const {
    for (int k = 0; k < N; ++k) at[k] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      int64_t quotient, index;
      if ((i | sizes[d]) >> 32) {
        quotient = i / sizes[d];
        index = i - quotient * sizes[d];
      } else {  // 32-bit division is several times cheaper
        quotient = uint32_t(i) / uint32_t(sizes[d]);
        index = uint32_t(i) - uint32_t(quotient) * uint32_t(sizes[d]);
      }
      for (int k = 0; k < N; ++k) at[k] += index * strides[k][d];
      i = quotient;
    }
  }

 private:
  bool evenly_spaced(int d) const {
    for (int k = 0; k < N; ++k)
      if (strides[k][d] != strides[k][d + 1] * sizes[d + 1]) return false;
    return true;
  }
};

inline constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread

// ---- CPU --------------------------------------------------------------------------------------

// flatten: everything that f calls is inlined, however large it is, or the loop would not vectorise.
template <class Y, class F, class... X>
[[gnu::flatten]] void cpu_row(int64_t n, F f, Y* y, const X*... x) {
#pragma GCC ivdep  // y may be one of the x, never overlap it otherwise
  for (int64_t i = 0; i < n; ++i) y[i] = Y(f(Compute<X>(x[i])...));
}

template <class Y, class F, class... X, size_t... K>
[[gnu::flatten]] void cpu_strided_row(int64_t n, F f, const int64_t* step,
                                      std::index_sequence<K...>, Y* y, const X*... x) {
  bool unit = step[0] == 1 && ((step[K + 1] == 1) && ...);
  if (unit) return cpu_row(n, f, y, x...);
  for (int64_t i = 0; i < n; ++i) y[i * step[0]] = Y(f(Compute<X>(x[i * step[K + 1]])...));
}

template <class Y, class F, class... X, size_t... K>
void cpu_elementwise(const Walk<sizeof...(X) + 1>& w, F f, std::index_sequence<K...> k, Y* y,
                     const X*... x) {
  constexpr int kArrays = sizeof...(X) + 1;
  if (w.numel == 0) return;
  if (w.flat) {
    if (w.numel < 2 * kGrain) return cpu_row(w.numel, f, y, x...);
    return parallel_for(w.numel, kGrain, [&](int64_t begin, int64_t end) {
      cpu_row(end - begin, f, y + begin, (x + begin)...);
    });
  }
  int64_t row = w.sizes[w.rank - 1], step[kArrays];
  for (int a = 0; a < kArrays; ++a) step[a] = w.strides[a][w.rank - 1];
  parallel_for(w.numel / row, std::max<int64_t>(1, kGrain / row), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t at[kArrays];
      w.locate(r * row, at);
      cpu_strided_row(row, f, step, k, y + at[0], (x + at[K + 1])...);
    }
  });
}

// ---- CUDA -------------------------------------------------------------------------------------

#if defined(__CUDACC__)

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T v[V];
};

/// Contiguous arrays: V elements a thread, one wide load per array.
template <int V, class Y, class F, class... X>
__global__ void flat_kernel(int64_t n, F f, Y* y, const X*... x) {
  int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (i + V <= n) {
    Pack<Y, V> out;
    auto compute = [&](Pack<X, V>... in) {  // by value: each is one load into registers
#pragma unroll
      for (int j = 0; j < V; ++j) out.v[j] = Y(f(Compute<X>(in.v[j])...));
    };
    compute(*reinterpret_cast<const Pack<X, V>*>(x + i)...);
    *reinterpret_cast<Pack<Y, V>*>(y + i) = out;
  } else {
    for (; i < n; ++i) y[i] = Y(f(Compute<X>(x[i])...));
  }
}

template <class Y, class F, class... X, size_t... K>
__device__ void strided_element(const Walk<sizeof...(X) + 1>& w, int64_t i, F f,
                                std::index_sequence<K...>, Y* y, const X*... x) {
  int64_t at[sizeof...(X) + 1];
  w.locate(i, at);
  y[at[0]] = Y(f(Compute<X>(x[at[K + 1]])...));
}

template <class Y, class F, class... X>
__global__ void strided_kernel(__grid_constant__ const Walk<sizeof...(X) + 1> w, F f, Y* y,
                               const X*... x) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < w.numel) strided_element(w, i, f, std::index_sequence_for<X...>{}, y, x...);
}

inline bool aligned_to(size_t bytes, const void* p) { return uintptr_t(p) % bytes == 0; }

template <class Y, class F, class... X>
void cuda_elementwise(Device device, const Walk<sizeof...(X) + 1>& w, F f, Y* y, const X*... x) {
  constexpr int kThreads = 256;
  constexpr size_t kWidest = std::max({sizeof(Y), sizeof(X)...});
  constexpr int V = kWidest >= 8 ? 2 : kWidest == 4 ? 4 : 8;
  if (w.numel == 0) return;
  cudaStream_t stream = cuda::stream(device);
  auto blocks = [&](int64_t threads) { return unsigned((threads + kThreads - 1) / kThreads); };
  bool wide = aligned_to(sizeof(Y) * V, y) && (aligned_to(sizeof(X) * V, x) && ...);
  if (w.flat && wide)
    flat_kernel<V><<<blocks((w.numel + V - 1) / V), kThreads, 0, stream>>>(w.numel, f, y, x...);
  else
    strided_kernel<<<blocks(w.numel), kThreads, 0, stream>>>(w, f, y, x...);
  cuda::check_launch("elementwise kernel");
}

#endif

/// y ← f(x...) on `device`, where Y and X are the stored types; f sees Compute<X>.
template <class Y, class F, class... X>
void elementwise(Device device, const Walk<sizeof...(X) + 1>& walk, F f, Y* y, const X*... x) {
#if defined(__CUDACC__)
  if (device.is_cuda()) return cuda_elementwise(device, walk, f, y, x...);
#endif
  check(!device.is_cuda(), "elementwise: this file was compiled without CUDA");
  cpu_elementwise(walk, f, std::index_sequence_for<X...>{}, y, x...);
}

}  // namespace gradus
