// Dropout [Srivastava, Hinton, Krizhevsky, Sutskever & Salakhutdinov 2014]: each element is set to 0
// with probability p, the others are scaled up so that the mean stays:
//
//   y = x ⊙ m / (1 − p),   P(m = 0) = p         dx = dy ⊙ m / (1 − p): the same linear map
//
// The mask is not stored. Element i, counted in row-major order, is kept when word i of a Philox
// stream reaches p 2³² (ops/drop_mask.h), so that backward needs the stream's number and p, nothing
// else; and CPU, GPU and a recomputed forward agree on every element. Where x is a part of a whole, i
// is counted in the whole (core/index_map.h): however it is cut, the same elements are dropped. What is
// dropped is 0, so p = 1 is no special case.
#include <algorithm>

#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "core/elementwise.h"
#include "ops/drop_mask.h"
#include "ops/ops.h"

namespace gradus {
namespace {

/// The words of elements i … i + n − 1.
void fill_words(const Philox& stream, const IndexMap& elements, int64_t i, uint32_t* out,
                int64_t n) {
  while (n > 0) {
    const int64_t count = elements.side_by_side(uint64_t(i), n);
    gradus::fill_words(stream, elements(uint64_t(i)), out, count);
    i += count, out += count, n -= count;
  }
}

template <class T>
void drop_cpu(const DropMask& mask, const IndexMap& elements, const T* x, T* y, int64_t begin,
              int64_t end) {
  using C = Compute<T>;
  constexpr int64_t kPiece = 1024;
  uint32_t words[kPiece];
  const DropMask own = mask;
  for (int64_t i = begin; i < end; i += kPiece) {
    int64_t n = std::min(kPiece, end - i);
    fill_words(mask.stream, elements, i, words, n);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) y[i + k] = T(own(words[k], C(x[i + k])));
  }
}

#if defined(__CUDACC__)

/// V neighbours a thread, a multiple of the cipher's four. kBlocks: fours of them are a block of the
/// cipher, else each element runs it for itself.
template <int V, bool kBlocks, class T>
__global__ void dropout_kernel(int64_t n, DropMask mask, IndexMap elements, bool wide, const T* x,
                               T* y) {
  using C = Compute<T>;
  using P = Pack<T, V>;
  int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (i >= n) return;
  wide = wide && i + V <= n;
  P in{}, out;
  if (wide)
    in = *reinterpret_cast<const P*>(x + i);
  else
    for (int k = 0; k < V && i + k < n; ++k) in.v[k] = x[i + k];
#pragma unroll
  for (int b = 0; b < V; b += 4) {
    RandomBlock words{};
    if (kBlocks) words = mask.stream.block(elements(uint64_t(i + b)) / 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t word =
          kBlocks ? words.lane(k) : mask.stream.word(elements(uint64_t(i + b + k)));
      out.v[b + k] = T(mask(word, C(in.v[b + k])));
    }
  }
  if (wide)
    *reinterpret_cast<P*>(y + i) = out;
  else
    for (int k = 0; k < V && i + k < n; ++k) y[i + k] = out.v[k];
}

template <class T>
void drop_cuda(Device device, const DropMask& mask, const IndexMap& elements, const T* x, T* y,
               int64_t n) {
  constexpr int V = sizeof(T) == 2 ? 8 : 4, kThreads = 256;
  bool wide = aligned_to(sizeof(T) * V, x) && aligned_to(sizeof(T) * V, y);
  unsigned blocks = unsigned((n + kThreads * V - 1) / (kThreads * V));
  auto kernel = elements.keeps(4) ? dropout_kernel<V, true, T> : dropout_kernel<V, false, T>;
  kernel<<<blocks, kThreads, 0, cuda::stream(device)>>>(n, mask, elements, wide, x, y);
  cuda::check_launch("dropout kernel");
}

#endif

Tensor drop(const Tensor& x, const DropMask& mask, const IndexMap& elements) {
  Tensor dense = contiguous(x), y = empty_like(x);
  int64_t n = x.numel();
  if (n == 0) return y;
  dispatch_floating("dropout", x.dtype(), [&]<class T>() {
    const T* in = dense.data<T>();
    T* out = y.data<T>();
#if defined(__CUDACC__)
    if (x.device().is_cuda()) return drop_cuda(x.device(), mask, elements, in, out, n);
#endif
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      drop_cpu(mask, elements, in, out, begin, end);
    });
  });
  return y;
}

struct Dropout {
  static constexpr auto name = "dropout";
  static constexpr bool recordable = true;
  Philox stream{};
  double p = 0;
  IndexMap elements{};
  Tensor forward(const Tensor& x) { return drop(x, {stream, p}, elements); }
  Tensor backward(const Tensor& dy) {
    return apply(Dropout{.stream = stream, .p = p, .elements = elements}, dy);
  }
};

void check_dropout(const Tensor& x, double p) {
  check(bool(x), "dropout of an undefined tensor");
  check(is_floating(x.dtype()), "a floating tensor is needed by dropout, got ", x.dtype());
  check(p >= 0 && p <= 1, "dropout: a probability is needed, 0 ≤ p ≤ 1, got p = ", p);
}

}  // namespace

Tensor dropout(const Tensor& x, double p, Generator& generator) {
  check_dropout(x, p);
  return p == 0 ? x : dropout(x, p, generator.next());
}

Tensor dropout(const Tensor& x, double p, const Philox& mask, const IndexMap& elements) {
  check_dropout(x, p);
  check_map("dropout", elements);
  return p == 0 ? x : apply(Dropout{.stream = mask, .p = p, .elements = elements}, x);
}

static const Gradcheck checks[] = {
    {"dropout",
     [](Sampler& s) {
       Generator g(7);
       return dropout(s.normal({3, 5}), 0.4, g);
     },
     true},
    {"dropout",
     [](Sampler& s) {
       Generator g(8);
       return dropout(s.normal({2, 3, 7}), 0.1, g);
     },
     true},
    {"dropout",
     [](Sampler& s) {
       Generator g(9);
       return dropout(expand(s.normal({3, 1}), {2, 3, 4}), 0.5, g);
     },
     true},
    {"dropout",
     [](Sampler& s) {  // columns 3, 4, 5 of 7
       return dropout(s.normal({4, 3}), 0.4, Philox{7, 1}, {.first = 3, .run = 3, .stride = 7});
     },
     true},
    {"dropout",
     [](Sampler& s) {
       Generator g(7);
       return dropout(s.normal({0, 5}), 0.4, g);
     }},
};

}  // namespace gradus
