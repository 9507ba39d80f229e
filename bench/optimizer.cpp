// The passes over the parameter arena: AdamW, SGD and the gradient norm, in bytes per second, beside a
// copy of the same memory. Arguments: elements. At 124 million an update moves 3.5 GB.
#include <benchmark/benchmark.h>

#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/grad_norm.h"
#include "optim/sgd.h"

namespace gradus {
namespace {

using namespace optim;

void set_bytes(benchmark::State& state, int64_t bytes_an_element) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * bytes_an_element);
}

std::vector<ParameterGroup> parameters(int64_t n, DType dtype) {
  return default_groups({zeros({n / 1000, 1000}, dtype).requires_grad_()});
}

void Copy(benchmark::State& state) {  // reads and writes as much as AdamW
  Tensor from = ones({state.range(0) * 7 / 2}), to = ones(from.shape());
  for (auto _ : state) copy_(to, from);
  set_bytes(state, 28);
}

/// Reads θ, g, m, v and writes θ, m, v; with masters also 16-bit parameters.
void AdamW(benchmark::State& state, DType dtype) {
  Adam adam(parameters(state.range(0), dtype));
  fill_(adam.flat().gradients(), 0.5);
  for (auto _ : state) adam.update(1e-3);
  set_bytes(state, dtype == DType::f32 ? 28 : 30);
}

void SgdMomentum(benchmark::State& state) {
  Sgd sgd(parameters(state.range(0), DType::f32), {.momentum = 0.9});
  for (auto _ : state) sgd.update(1e-3);
  set_bytes(state, 20);
}

void GradNorm(benchmark::State& state) {
  Tensor g = ones({state.range(0)});
  for (auto _ : state) benchmark::DoNotOptimize(power_sum({g}).norm());
  set_bytes(state, 4);
}

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(1'000'000)->Arg(124'000'000)->Unit(benchmark::kMillisecond)->UseRealTime();
}
BENCHMARK(Copy)->Apply(sizes);
BENCHMARK_CAPTURE(AdamW, f32, DType::f32)->Apply(sizes);
BENCHMARK_CAPTURE(AdamW, bf16, DType::bf16)->Apply(sizes);
BENCHMARK(SgdMomentum)->Apply(sizes);
BENCHMARK(GradNorm)->Apply(sizes);

}  // namespace
}  // namespace gradus

BENCHMARK_MAIN();
