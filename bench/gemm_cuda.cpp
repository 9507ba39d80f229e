// The matrix products of a GPT's step on a GPU, bf16: the first algorithm that cuBLASLt names beside the
// fastest one, gelu on the way of a product beside gelu as a pass, sums of columns beside the speed of
// memory, and the host's time for a call.
//
//   build/cuda/bench/gemm_cuda [tokens …]        default: 65536 16384 4096
//
// Median of 9 samples of 5 calls between events, which queue up behind a copy, so that the host's time is
// not in them. Operands are random and taken in turn from copies that exceed the L2 cache. First and
// tuned alternate.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "core/cuda.h"
#include "core/time_mark.h"
#include "ops/activation.h"
#include "ops/gelu_mlp.h"
#include "ops/gemm_plan.h"
#include "ops/gemm_tensor.h"
#include "ops/gemm_tuning.h"
#include "ops/reduce.h"

#if defined(GRADUS_CUDA)

using namespace gradus;

namespace {

Generator generator(1);
Tensor random(const Shape& shape, double size, DType dtype = DType::bf16) {
  return uniform(shape, generator, -size, size, dtype, kCuda);
}

/// Copies of operands, one set after the other.
struct Rotation {
  std::vector<std::vector<Tensor>> sets;
  size_t next = 0;
  Rotation(const std::function<std::vector<Tensor>()>& make) {
    int64_t bytes = 0;
    do {
      sets.push_back(make());
      for (const Tensor& t : sets.back()) bytes += bytes_of(t);
    } while (bytes < (150 << 20) && sets.size() < 8);
  }
  const std::vector<Tensor>& take() { return sets[next++ % sets.size()]; }
};

using Body = std::function<void(const std::vector<Tensor>&)>;

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// Half a millisecond of work for the GPU.
void keep_busy() {
  static Tensor from = random({1 << 29}, 1), to = random({1 << 29}, 1);
  copy_bytes(to.raw(), kCuda, from.raw(), kCuda, size_t(bytes_of(from)));
}

/// Milliseconds of a call of body, on operands from `rotation`.
double sample(Rotation& rotation, const Body& body) {
  keep_busy();
  body(rotation.take());
  const TimeMark begin(kCuda);
  for (int i = 0; i < 5; ++i) body(rotation.take());
  const TimeMark end(kCuda);
  end.wait();
  return end.since(begin) / 5;
}

double time(Rotation& rotation, const Body& body) {
  std::vector<double> samples;
  body(rotation.take());
  for (int i = 0; i < 9; ++i) samples.push_back(sample(rotation, body));
  return median(samples);
}

struct Times {
  double first, tuned;
};
const std::string kFile = "gemm_cuda_bench.txt";
Times both(Rotation& r, const Body& body) {
  std::vector<double> first, tuned;
  for (int i = 0; i < 9; ++i) {
    first.push_back(sample(r, body));
    GemmTuning tuning(kFile);
    body(r.take());  // read or timed here
    tuned.push_back(sample(r, body));
  }
  return {median(first), median(tuned)};
}

void print(int64_t tokens, const std::string& name, double flop, Times t) {
  std::printf("%6ld %-28s first %.4f ms %4.0f TFLOP/s   tuned %.4f ms %4.0f   %.3f\n", long(tokens),
              name.c_str(), t.first, flop / t.first / 1e9, t.tuned, flop / t.tuned / 1e9,
              t.tuned / t.first);
  std::fflush(stdout);
}

/// y = x Wᵀ and its two gradients.
void layer(int64_t tokens, const std::string& name, int64_t in, int64_t out) {
  double flop = 2.0 * double(tokens * in * out);
  Rotation r([&] {
    return std::vector{random({tokens, in}, 1), random({tokens, out}, 1), random({out, in}, 0.05),
                       random({out}, 1)};
  });
  Tensor dw = zeros({out, in}, DType::f32, kCuda);
  print(tokens, name + " y", flop, both(r, [&](auto& s) { gemm_into(s[1], s[0], t(s[2]), 0); }));
  if (out != 50304)
    print(tokens, name + " y + bias", flop,
          both(r, [&](auto& s) { gemm_bias_into(s[1], s[0], t(s[2]), s[3]); }));
  print(tokens, name + " dx", flop, both(r, [&](auto& s) { gemm_into(s[0], s[1], s[2], 0); }));
  print(tokens, name + " dW", flop, both(r, [&](auto& s) { gemm_into(dw, t(s[1]), s[0], 0); }));
  print(tokens, name + " dW added", flop,
        both(r, [&](auto& s) { gemm_into(dw, t(s[1]), s[0], 1); }));
}

/// The two products of an MLP with a gelu on their way, and the whole of it.
void mlp(int64_t tokens, int64_t width) {
  int64_t inner = 4 * width;
  double flop = 2.0 * double(tokens * width * inner);
  Rotation r([&] {
    return std::vector{random({tokens, width}, 1), random({inner, width}, 0.05),
                       random({inner}, 1),         random({tokens, inner}, 1),
                       random({tokens, inner}, 1), random({width, inner}, 0.05)};
  });
  using Gelu = Epilogue::Gelu;
  print(tokens, "gelu(x W1' + b1) fused", flop, both(r, [&](auto& s) {
          gemm_into(s[3], s[0], t(s[1]), 0,
                    {.bias = s[2].raw(), .gelu = Gelu::forward, .pre_gelu = s[4].raw()});
        }));
  print(tokens, "gelu(x W1' + b1) separate", flop, both(r, [&](auto& s) {
          gemm_bias_into(s[4], s[0], t(s[1]), s[2]);
          gelu(s[4], GeluKind::tanh);
        }));
  print(tokens, "(dY W2) gelu'(h) fused", flop, both(r, [&](auto& s) {
          gemm_into(s[3], s[0], s[5], 0, {.gelu = Gelu::backward, .pre_gelu = s[4].raw()});
        }));
  print(tokens, "(dY W2) gelu'(h) separate", flop, both(r, [&](auto& s) {
          gemm_into(s[3], s[0], s[5], 0);
          gelu_backward(s[3], s[4], GeluKind::tanh);
        }));
  auto leaf = [](Tensor p) {
    p.requires_grad_().set_main_grad(zeros(p.shape(), DType::f32, kCuda));
    return p;
  };
  Tensor w1 = leaf(random({inner, width}, 0.05)), b1 = leaf(random({inner}, 1));
  Tensor w2 = leaf(random({width, inner}, 0.05)), b2 = leaf(random({width}, 1));
  Tensor dy = random({tokens, width}, 1);
  Rotation xs([&] { return std::vector{random({tokens, width}, 1).requires_grad_()}; });
  auto train = [&](auto forward) {
    return both(xs, [&](auto& s) {
      EnableGrad recorded;
      s[0].zero_grad();
      forward(s[0]).backward(dy);
    });
  };
  print(tokens, "mlp, one op", 6 * flop,
        train([&](const Tensor& x) { return gelu_mlp(x, w1, b1, w2, b2); }));
  print(tokens, "mlp, three ops", 6 * flop, train([&](const Tensor& x) {
          return linear(gelu(linear(x, w1, b1), GeluKind::tanh), w2, b2);
        }));
}

void bias_gradient(int64_t tokens, int64_t n) {
  Rotation r([&] { return std::vector{random({tokens, n}, 1)}; });
  Tensor db = zeros({n}, DType::f32, kCuda);
  double into = time(r, [&](auto& s) { sum_rows_into(db, s[0], 1); });
  double made = time(r, [&](auto& s) { sum(s[0], {0}); });
  double bytes = 2.0 * double(tokens * n);
  std::printf(
      "%6ld sum of columns, %4ld           added %.4f ms %.2f TB/s   new %.4f ms %.2f TB/s\n",
      long(tokens), long(n), into, bytes / into / 1e9, made, bytes / made / 1e9);
}

void copy() {
  Rotation r([&] { return std::vector{random({1 << 28}, 1), random({1 << 28}, 1)}; });
  double ms = time(r, [&](auto& s) {
    copy_bytes(s[0].raw(), kCuda, s[1].raw(), kCuda, size_t(bytes_of(s[0])));
  });
  std::printf("copy %.2f TB/s\n", 4.0 * double(1 << 28) / ms / 1e9);
}

/// Microseconds of the host for body, the GPU having less to do than the host.
double host(const std::function<void()>& body) {
  for (int i = 0; i < 100; ++i) body();
  synchronize(kCuda);
  double best = 1e9;
  for (int s = 0; s < 5; ++s) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i) body();
    std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - begin;
    synchronize(kCuda);
    best = std::min(best, passed.count() / 200);
  }
  return best;
}

void host_costs() {
  const int64_t n = 64;
  Tensor x = random({n, n}, 1), w = random({n, n}, 1), b = random({n}, 1), y = random({n, n}, 1);
  Tensor leaf = random({n, n}, 1).requires_grad_();
  Gemm g{.transpose_b = true,
         .m = n,
         .n = n,
         .k = n,
         .lda = n,
         .ldb = n,
         .ldc = n,
         .type = DType::bf16,
         .type_c = DType::bf16};
  lt::Plan plan = lt::make_plan(g, {});
  cublasLtHandle_t handle;
  check(cublasLtCreate(&handle), "handle");
  lt::Operands operands{x.raw(), w.raw(), y.raw()};
  Tensor workspace = empty({int64_t(lt::kWorkspace)}, DType::u8, kCuda);
  lt::Call call{handle, plan, g, operands, y.raw(), workspace.raw(), cuda::stream(kCuda)};
  auto algorithm = lt::algorithms(handle, plan, g, operands, 1)[0];
  std::printf("host, µs a call at %ld × %ld: cublasLtMatmul %.2f", long(n), long(n),
              host([&] { check(call.run(algorithm), "product"); }));
  std::printf("   gemm_cuda %.2f", host([&] { gemm_cuda(g, kCuda, x.raw(), w.raw(), y.raw()); }));
  std::printf("   gemm_into %.2f", host([&] { gemm_into(y, x, t(w), 0); }));
  {
    NoGrad guard;
    std::printf("   linear %.2f   with bias %.2f", host([&] { linear(x, w); }),
                host([&] { linear(x, w, b); }));
  }
  std::printf("   recorded %.2f\n", host([&] { linear(x, leaf, b); }));
  lt::Key key{};
  int64_t found = 0;
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000000; ++i) {
    key = lt::key_of(g, {x.raw(), w.raw(), static_cast<char*>(y.raw()) + i % 2 * 16}, {});
    found += int64_t(lt::KeyHash{}(key)&1);
  }
  std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - begin;
  std::printf("host, ns to make and hash a key: %.1f (%ld odd)\n", passed.count() / 1e6,
              long(found));
}

}  // namespace

int main(int argc, char** argv) try {
  if (cuda_device_count() == 0) {
    std::puts("gemm_cuda: no GPU here");
    return 0;
  }
  NoGrad guard;
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atol(argv[i]));
  if (sizes.empty()) sizes = {65536, 16384, 4096};
  std::remove(kFile.c_str());
  copy();
  host_costs();
  for (int64_t tokens : sizes) {
    for (int64_t n : {768, 2304, 3072}) bias_gradient(tokens, n);
    mlp(tokens, 768);
    layer(tokens, "qkv 768→2304", 768, 2304);
    layer(tokens, "attn_out 768→768", 768, 768);
    layer(tokens, "fc_up 768→3072", 768, 3072);
    layer(tokens, "fc_down 3072→768", 3072, 768);
    if (tokens <= 16384) layer(tokens, "lm_head 768→50304", 768, 50304);
  }
} catch (const std::exception& e) {
  std::cerr << "gemm_cuda: " << e.what() << "\n";
  return 1;
}

#else

int main() { std::puts("gemm_cuda: built without CUDA"); }

#endif
