#include "nn/init.h"

#include <algorithm>
#include <cmath>

#include "autograd/node.h"
#include "core/elementwise.h"

namespace gradus::nn {
namespace {

/// The value of element i of the whole parameter, in double; the caller rounds.
struct Draw {
  Initializer init;
  Philox stream;

  GRADUS_HD double operator()(int64_t i) const {
    switch (init.kind) {
      case Initializer::Kind::constant:
        return init.a;
      case Initializer::Kind::uniform:
        return scale(stream.uniform<double>(uint64_t(i)));
      case Initializer::Kind::normal:
        break;
    }
    return scale(stream.normal(uint64_t(i)));
  }
  /// Elements first … first + n − 1, vectorised.
  void fill(int64_t first, double* out, int64_t n) const {
    switch (init.kind) {
      case Initializer::Kind::constant:
        std::fill_n(out, n, init.a);
        return;
      case Initializer::Kind::uniform:
        fill_uniform(stream, uint64_t(first), out, n);
        break;
      case Initializer::Kind::normal:
        fill_normal(stream, uint64_t(first), out, n);
        break;
    }
    for (int64_t k = 0; k < n; ++k) out[k] = scale(out[k]);
  }

 private:
  GRADUS_HD double scale(double x) const {
    return fma(x, init.kind == Initializer::Kind::uniform ? init.b - init.a : init.b, init.a);
  }
};

#if defined(__CUDACC__)
template <class T>
__global__ void draw_kernel(int64_t n, Draw draw, ShardMap map, T* out) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = T(Compute<T>(draw(map(i))));
}
#endif

template <class T>
void draw_on_cpu(int64_t n, const Draw& draw, const ShardMap& map, T* out) {
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kPiece = 1024;
    double piece[kPiece];
    for (int64_t i = begin; i < end;) {
      int64_t count = std::min({kPiece, end - i, map.run - i % map.run});
      draw.fill(map(i), piece, count);
      for (int64_t k = 0; k < count; ++k) out[i + k] = T(Compute<T>(piece[k]));
      i += count;
    }
  });
}

template <class T>
void draw_values(const Parameter& t, const Draw& draw, const ShardMap& map) {
  int64_t n = t.real_numel();
#if defined(__CUDACC__)
  if (t.device().is_cuda() && n > 0) {
    unsigned blocks = unsigned((n + 255) / 256);
    draw_kernel<<<blocks, 256, 0, cuda::stream(t.device())>>>(n, draw, map, t.data<T>());
    return cuda::check_launch("initialize kernel");
  }
#endif
  draw_on_cpu(n, draw, map, t.data<T>());
}

}  // namespace

namespace init {

Initializer constant(double value) { return {Initializer::Kind::constant, value, 0}; }
Initializer uniform(double low, double high) {
  check(low <= high, "init::uniform: the interval [", low, ", ", high, ") is empty");
  return {Initializer::Kind::uniform, low, high};
}
Initializer normal(double deviation, double mean) {
  check(deviation >= 0, "init::normal: the deviation is ", deviation);
  return {Initializer::Kind::normal, mean, deviation};
}

// U(−b, b) has the variance b²/3.
static Initializer uniform_of_deviation(double d) {
  return uniform(-std::sqrt(3.0) * d, std::sqrt(3.0) * d);
}

Initializer xavier_uniform(int64_t in, int64_t out, double gain) {
  return uniform_of_deviation(gain * std::sqrt(2 / double(in + out)));
}
Initializer xavier_normal(int64_t in, int64_t out, double gain) {
  return normal(gain * std::sqrt(2 / double(in + out)));
}
Initializer kaiming_uniform(int64_t in, double gain) {
  return uniform_of_deviation(gain / std::sqrt(double(in)));
}
Initializer kaiming_normal(int64_t in, double gain) { return normal(gain / std::sqrt(double(in))); }

}  // namespace init

void initialize(const Parameter& p, const Philox& stream) {
  check(p && p.is_contiguous(), "initialize needs a contiguous parameter, got ", p.describe());
  NoGrad guard;
  p.will_write("initialize");
  ShardMap map(p.shape(), p.shard);
  dispatch_floating("initialize", p.dtype(), [&]<class T>() {
    draw_values<T>(p, Draw{p.init, stream}, map);
  });
}

void initialize(Module& module, uint64_t seed) {
  for (const auto& [name, parameter] : module.named_parameters()) {
    parameter.set_name(name);
    initialize(parameter, Philox::at(seed, fnv1a(name.c_str())));
  }
}

}  // namespace gradus::nn
