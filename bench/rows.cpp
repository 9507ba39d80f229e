// Softmax, norms, reductions, cross-entropy, attention: bytes per second beside a plain copy, one thread.
// A forward and backward counts the bytes it must move: inputs once, outputs once.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <cstring>

#include "autograd/node.h"
#include "ops/ops.h"

namespace gradus {
namespace {

constexpr int64_t kRows = 8192, kColumns = 768;  // 25 MB: larger than a core's share of the cache

struct Inputs {
  Generator g{3};
  Tensor x = normal({kRows, kColumns}, g).requires_grad_(), dy = normal({kRows, kColumns}, g);
  Tensor gamma = ones({kColumns}).requires_grad_(), beta = zeros({kColumns}).requires_grad_();
  Inputs() { omp_set_num_threads(1); }
};

void set_bytes(benchmark::State& state, int matrices) {
  state.SetBytesProcessed(state.iterations() * kRows * kColumns * 4 * matrices);
}

void Copy(benchmark::State& state) {
  Inputs in;
  Tensor y = empty({kRows, kColumns});
  for (auto _ : state) {
    std::memcpy(y.data<float>(), in.x.data<float>(), size_t(bytes_of(y)));
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2);
}
BENCHMARK(Copy);

/// f on x; with a backward it moves x, y and dy, dx, and reads what it saved once more.
template <class F>
void run(benchmark::State& state, F f, int forward_matrices, int backward_matrices) {
  Inputs in;
  bool backward = state.range(0) != 0;
  for (auto _ : state) {
    GradMode mode(backward);
    Tensor y = f(in);
    if (backward) y.backward(in.dy);
    in.x.zero_grad();
    benchmark::DoNotOptimize(y);
  }
  set_bytes(state, forward_matrices + (backward ? backward_matrices : 0));
}

void Softmax(benchmark::State& s) {
  run(s, [](Inputs& in) { return softmax(in.x); }, 2, 3);
}
BENCHMARK(Softmax)->ArgName("backward")->Arg(0)->Arg(1);
void LayerNorm(benchmark::State& s) {
  run(s, [](Inputs& in) { return layer_norm(in.x, in.gamma, in.beta); }, 2, 3);
}
BENCHMARK(LayerNorm)->ArgName("backward")->Arg(0)->Arg(1);
void RmsNorm(benchmark::State& s) {
  run(s, [](Inputs& in) { return rms_norm(in.x, in.gamma); }, 2, 3);
}
BENCHMARK(RmsNorm)->ArgName("backward")->Arg(0)->Arg(1);
void GeluTanh(benchmark::State& s) {
  run(s, [](Inputs& in) { return gelu(in.x, GeluKind::tanh); }, 2, 3);
}
BENCHMARK(GeluTanh)->ArgName("backward")->Arg(0)->Arg(1);

template <class F>
void reduce(benchmark::State& state, F f) {
  Inputs in;
  NoGrad guard;
  for (auto _ : state) benchmark::DoNotOptimize(f(in.x));
  set_bytes(state, 1);
}
void SumAll(benchmark::State& s) { reduce(s, [](const Tensor& x) { return sum(x); }); }
BENCHMARK(SumAll);
void SumRows(benchmark::State& s) { reduce(s, [](const Tensor& x) { return sum(x, {1}); }); }
BENCHMARK(SumRows);
void SumColumns(benchmark::State& s) { reduce(s, [](const Tensor& x) { return sum(x, {0}); }); }
BENCHMARK(SumColumns);

void CrossEntropy(benchmark::State& state) {
  Inputs in;
  Tensor targets = cast(uniform({kRows}, in.g, 0, double(kColumns)), DType::i64);
  for (auto _ : state) {
    cross_entropy(in.x, targets).backward();
    in.x.zero_grad();
  }
  set_bytes(state, 3);
}
BENCHMARK(CrossEntropy);

/// Causal attention, forward and backward: 7 products of T²/2 · d, FLOP a second.
void Attention(benchmark::State& state) {
  Inputs in;
  int64_t B = 8, H = 8, T = state.range(0), d = 32;
  Tensor q = normal({B, H, T, d}, in.g).requires_grad_(), dy = normal({B, H, T, d}, in.g);
  for (auto _ : state) {
    attention(q, q, q, {.causal = true}).backward(dy);
    q.zero_grad();
  }
  state.counters["flops"] = benchmark::Counter(double(state.iterations() * B * H * T * T * d * 7),
                                               benchmark::Counter::kIsRate);
}
BENCHMARK(Attention)->ArgName("T")->Arg(128)->Arg(256)->Arg(1024);

}  // namespace
}  // namespace gradus

BENCHMARK_MAIN();
