// What the tape itself costs: ops on tensors of one element, where arithmetic is free.
//
//   bench/engine --benchmark_filter=Recorded
//
// Reference (PyTorch 2.11, C++ API, another machine): add 670 ns, recorded 2970 ns, with backward 15 µs.
#include <benchmark/benchmark.h>

#include "autograd/node.h"
#include "ops/ops.h"

namespace gradus {
namespace {

constexpr int kChain = 1000;  // ops a measurement, so that its own cost vanishes

Tensor chain(Tensor x, const Tensor& w) {
  for (int i = 0; i < kChain; ++i) x = mul(x, w);
  return x;
}

void Unrecorded(benchmark::State& state) {
  Tensor x = ones({1}), w = ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(chain(x, w));
  state.SetItemsProcessed(state.iterations() * kChain);
}
BENCHMARK(Unrecorded);

/// A recorded op with its node, and its share of the graph's destruction.
void Recorded(benchmark::State& state) {
  Tensor x = ones({1}), w = ones({1}).requires_grad_();
  for (auto _ : state) benchmark::DoNotOptimize(chain(x, w));
  state.SetItemsProcessed(state.iterations() * kChain);
}
BENCHMARK(Recorded);

/// The same, then backward: both gradients of each product, and the sum in the leaf w.
void RecordedAndBackward(benchmark::State& state) {
  Tensor x = ones({1}), w = ones({1}).requires_grad_();
  for (auto _ : state) {
    chain(x, w).backward();
    w.zero_grad();
  }
  state.SetItemsProcessed(state.iterations() * kChain);
}
BENCHMARK(RecordedAndBackward);

/// An op of one input, whose backward is one op: the least that a node costs.
void UnaryChainAndBackward(benchmark::State& state) {
  Tensor x = ones({1}).requires_grad_();
  for (auto _ : state) {
    Tensor y = x;
    for (int i = 0; i < kChain; ++i) y = mul(y, 1.0);
    y.backward();
    x.zero_grad();
  }
  state.SetItemsProcessed(state.iterations() * kChain);
}
BENCHMARK(UnaryChainAndBackward);

}  // namespace
}  // namespace gradus

BENCHMARK_MAIN();
