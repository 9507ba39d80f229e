// Tensors made from nothing: constants, ramps, random numbers. None has a history.
//
//   uniform   y_i = low + (high − low) u_i,    0 ≤ u_i < 1
//   normal    y_i = mean + deviation n_i
//
// u_i and n_i are element i of one Philox stream, i counting in row-major order: a number depends on
// its place in the tensor alone. Product and sum are one fma, so CPU and GPU round alike.
#include <algorithm>

#include "core/elementwise.h"
#include "ops/ops.h"

namespace gradus {
namespace {

template <class T>
struct Constant {
  T value;
  GRADUS_HD Compute<T> operator()() const { return value; }
};

void fill(const char* op, const Tensor& x, double value) {
  dispatch_all(x.dtype(), [&]<class T>() {
    Constant<T> constant{number_as<T>(op, value)};
    x.will_write(op);
    elementwise(x.device(), Walk<1>({&x.shape()}, {&x.strides()}), constant, x.data<T>());
  });
}

// ---- what a generator makes of block i: elements 4i … 4i + 3

struct Ramp {
  template <class T>
  GRADUS_HD void block(int64_t i, T (&y)[4]) const {
    for (int k = 0; k < 4; ++k) y[k] = T(4 * i + k);
  }
  template <class T>
  void fill(int64_t first, T* y, int64_t n) const {
    for (int64_t k = 0; k < n; ++k) y[k] = T(first + k);
  }
};

struct Uniform {
  Philox stream;
  double low, width;

  GRADUS_HD void block(int64_t i, float (&y)[4]) const {
    RandomBlock b = stream.block(i);
    for (int k = 0; k < 4; ++k) y[k] = std::fma(uniform_float(b.lane(k)), float(width), float(low));
  }
  GRADUS_HD void block(int64_t i, double (&y)[4]) const {
    RandomBlock high = stream.block(i), rest = stream.block(kLowBits + i);
    for (int k = 0; k < 4; ++k)
      y[k] = std::fma(uniform_double(high.lane(k), rest.lane(k)), width, low);
  }
  template <class T>
  void fill(int64_t first, T* y, int64_t n) const {
    fill_uniform(stream, uint64_t(first), y, n);
    for (int64_t k = 0; k < n; ++k) y[k] = std::fma(y[k], T(width), T(low));
  }
};

struct Normal {
  Philox stream;
  double mean, deviation;

  template <class T>
  GRADUS_HD void block(int64_t i, T (&y)[4]) const {
    RandomBlock b = stream.block(i);
    NormalPair first = box_muller(b.x, b.y), second = box_muller(b.z, b.w);
    const double normals[] = {first.even, first.odd, second.even, second.odd};
    for (int k = 0; k < 4; ++k) y[k] = std::fma(T(normals[k]), T(deviation), T(mean));
  }
  template <class T>
  void fill(int64_t first, T* y, int64_t n) const {
    fill_normal(stream, uint64_t(first), y, n);
    for (int64_t k = 0; k < n; ++k) y[k] = std::fma(y[k], T(deviation), T(mean));
  }
};

#if defined(__CUDACC__)
template <class T, class F>
__global__ void generate_kernel(int64_t n, F f, T* y) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (4 * i >= n) return;
  Compute<T> four[4];
  f.block(i, four);
  for (int k = 0; k < 4 && 4 * i + k < n; ++k) y[4 * i + k] = T(four[k]);
}
#endif

/// y_i ← f's element i. y is contiguous.
template <class T, class F>
void generate(const Tensor& y, F f) {
  int64_t n = y.numel();
  T* out = y.data<T>();
#if defined(__CUDACC__)
  if (y.device().is_cuda() && n > 0) {
    generate_kernel<<<unsigned((n + 1023) / 1024), 256, 0, cuda::stream(y.device())>>>(n, f, out);
    return cuda::check_launch("generate kernel");
  }
#endif
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kPiece = 1024;
    Compute<T> piece[kPiece];
    for (int64_t i = begin; i < end; i += kPiece) {
      int64_t count = std::min(kPiece, end - i);
      f.fill(i, piece, count);
      for (int64_t k = 0; k < count; ++k) out[i + k] = T(piece[k]);
    }
  });
}

// ---- one_hot

#if defined(__CUDACC__)
template <class T, class Id>
__global__ void one_hot_kernel(int64_t n, int64_t classes, const Id* ids, T* y,
                               cuda::DeviceError* record) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int64_t id = ids[i];
  if (id < 0 || id >= classes) return cuda::report_index(record, "one_hot", i, id, classes);
  y[i * classes + id] = T(Compute<T>(1));
}
#endif

/// y (n, classes) is 0 everywhere; row i gets its 1 in column ids[i].
template <class T, class Id>
void set_ones(const Tensor& y, const Tensor& ids, int64_t classes) {
  int64_t n = ids.numel();
  const Id* id = ids.data<Id>();
  T* out = y.data<T>();
#if defined(__CUDACC__)
  if (y.device().is_cuda() && n > 0) {
    one_hot_kernel<<<unsigned((n + 255) / 256), 256, 0, cuda::stream(y.device())>>>(
        n, classes, id, out, cuda::error_record(y.device()));
    return cuda::check_launch("one_hot kernel");
  }
#endif
  for (int64_t i = 0; i < n; ++i) {
    if (id[i] < 0 || id[i] >= classes) fail_index("one_hot", i, id[i], classes);
    out[i * classes + id[i]] = T(Compute<T>(1));
  }
}

}  // namespace

void fill_(const Tensor& x, double value) {
  check(bool(x), "fill_ of an undefined tensor");
  fill("fill_", x, value);
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor y = empty(shape, dtype, device);
  fill("full", y, value);
  return y;
}
Tensor zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0, dtype, device);
}
Tensor ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1, dtype, device);
}

Tensor tensor(const std::vector<double>& values, const Shape& shape, DType dtype, Device device) {
  check(int64_t(values.size()) == shape.numel(), "tensor: ", values.size(), " values for shape ",
        shape);
  Tensor y = empty(shape, dtype);
  dispatch_all(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) y.data<T>()[i] = number_as<T>("tensor", values[i]);
  });
  return to(y, device);
}

Tensor arange(int64_t n, DType dtype, Device device) {
  check(n >= 0, "arange: the length is ", n);
  Tensor y = empty({n}, dtype, device);
  dispatch_all(dtype, [&]<class T>() {
    number_as<T>("arange", double(std::max<int64_t>(n - 1, 0)));
    generate<T>(y, Ramp{});
  });
  return y;
}

Tensor uniform(const Shape& shape, Generator& generator, double low, double high, DType dtype,
               Device device) {
  check(low <= high, "uniform: the interval [", low, ", ", high, ") is empty");
  Tensor y = empty(shape, dtype, device);
  dispatch_floating("uniform", dtype, [&]<class T>() {
    generate<T>(y, Uniform{generator.next(), low, high - low});
  });
  return y;
}

Tensor normal(const Shape& shape, Generator& generator, double mean, double deviation, DType dtype,
              Device device) {
  check(deviation >= 0, "normal: the deviation is ", deviation);
  Tensor y = empty(shape, dtype, device);
  dispatch_floating("normal", dtype, [&]<class T>() {
    generate<T>(y, Normal{generator.next(), mean, deviation});
  });
  return y;
}

Tensor one_hot(const Tensor& ids, int64_t classes, DType dtype) {
  check(bool(ids), "one_hot of undefined ids");
  check(classes >= 0, "one_hot: the number of classes is ", classes);
  Tensor dense = contiguous(ids);
  Shape shape = ids.shape();
  shape.push_back(classes);
  return dispatch_index("one_hot", ids.dtype(), [&]<class Id>() {
    Tensor y = zeros(shape, dtype, ids.device());
    dispatch_all(dtype, [&]<class T>() { set_ones<T, Id>(y, dense, classes); });
    return y;
  });
}

}  // namespace gradus
