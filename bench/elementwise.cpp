// map() against a loop written by hand for the same arrays: bytes per second, one thread.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <cstring>

#include "autograd/node.h"
#include "ops/ops.h"

namespace gradus {
namespace {

constexpr int64_t kCount = 1 << 20;

void set_bytes(benchmark::State& state, int arrays) {
  state.SetBytesProcessed(state.iterations() * kCount * arrays * int64_t(sizeof(float)));
}

void Copy(benchmark::State& state) {
  omp_set_num_threads(1);
  Tensor x = ones({kCount}), y = ones({kCount});
  for (auto _ : state) {
    std::memcpy(y.data<float>(), x.data<float>(), kCount * sizeof(float));
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2);
}
BENCHMARK(Copy);

void AddByHand(benchmark::State& state) {
  omp_set_num_threads(1);
  Tensor a = ones({kCount}), b = ones({kCount});
  for (auto _ : state) {
    Tensor c = empty({kCount});
    const float *p = a.data<float>(), *q = b.data<float>();
    float* r = c.data<float>();
#pragma GCC ivdep
    for (int64_t i = 0; i < kCount; ++i) r[i] = p[i] + q[i];
    benchmark::DoNotOptimize(r);
    benchmark::ClobberMemory();
  }
  set_bytes(state, 3);
}
BENCHMARK(AddByHand);

template <Tensor (*op)(const Tensor&, const Tensor&)>
void Binary(benchmark::State& state) {
  omp_set_num_threads(1);
  Tensor a = ones({kCount}), b = ones({kCount});
  for (auto _ : state) benchmark::DoNotOptimize(op(a, b));
  set_bytes(state, 3);
}
BENCHMARK(Binary<add>)->Name("Add");
BENCHMARK(Binary<mul>)->Name("Mul");

/// A bias: (1024, 1024) + (1024).
void AddBroadcast(benchmark::State& state) {
  omp_set_num_threads(1);
  Tensor a = ones({1024, 1024}), b = ones({1024});
  for (auto _ : state) benchmark::DoNotOptimize(add(a, b));
  set_bytes(state, 2);
}
BENCHMARK(AddBroadcast);

template <Tensor (*op)(const Tensor&)>
void Unary(benchmark::State& state) {
  omp_set_num_threads(1);
  Tensor x = ones({kCount});
  for (auto _ : state) benchmark::DoNotOptimize(op(x));
  set_bytes(state, 2);
}
BENCHMARK(Unary<exp>)->Name("Exp");
BENCHMARK(Unary<tanh>)->Name("Tanh");
BENCHMARK(Unary<sigmoid>)->Name("Sigmoid");

void Gelu(benchmark::State& state) {
  omp_set_num_threads(1);
  Tensor x = ones({kCount});
  GeluKind kind = state.range(0) ? GeluKind::tanh : GeluKind::erf;
  for (auto _ : state) benchmark::DoNotOptimize(gelu(x, kind));
  set_bytes(state, 2);
}
BENCHMARK(Gelu)->ArgName("tanh")->Arg(0)->Arg(1);

}  // namespace
}  // namespace gradus

BENCHMARK_MAIN();
