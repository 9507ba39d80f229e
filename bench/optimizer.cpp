// The passes over the parameter arena, in bytes per second, beside a copy of as many bytes: AdamW, SGD,
// the gradient norm, and a whole step. Arguments: elements. At 124 million AdamW moves 3.5 GB. The peer
// is bench/optimizer_torch.py.
#include <benchmark/benchmark.h>

#include "core/cuda.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/grad_norm.h"
#include "optim/sgd.h"

namespace gradus {
namespace {

using namespace optim;

/// Runs `pass`, which moves so many bytes an element; on a GPU, 20 times between two waits.
template <class Pass>
void measure(benchmark::State& state, Device device, int64_t bytes_an_element, Pass pass) {
  const int64_t batch = device.is_cuda() ? 20 : 1;
  pass();
  synchronize(device);
  while (state.KeepRunningBatch(batch)) {
    for (int64_t i = 0; i < batch; ++i) pass();
    synchronize(device);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * bytes_an_element);
}

/// Two groups, as a model has them, with random gradients.
struct Arena {
  std::vector<ParameterGroup> groups;
  Tensors leaves;

  Arena(int64_t n, DType dtype, Device device) {
    leaves.push_back(zeros({n / 1000 - 1, 1000}, dtype, device).requires_grad_());
    leaves.push_back(zeros({1000}, dtype, device).requires_grad_());
    groups = default_groups(leaves);
  }
  void fill_gradients() const {
    Generator random(1);
    for (const Tensor& x : leaves)
      mul(x, 1).backward(normal(x.shape(), random, 0, 1, x.dtype(), x.device()));
  }
};

void Copy(benchmark::State& state, Device device) {  // reads and writes as much as AdamW
  Generator random(1);
  Tensor from = normal({state.range(0) * 7 / 2}, random, 0, 1, DType::f32, device);
  Tensor to = empty_like(from);
  measure(state, device, 28, [&] { copy_(to, from); });
}

/// Reads θ, g, m, v and writes θ, m, v. A split master is as many bytes as an f32.
void AdamW(benchmark::State& state, DType dtype, Device device) {
  Arena arena(state.range(0), dtype, device);
  Adam adam(arena.groups, {.weight_decay = 0.1});
  arena.fill_gradients();
  measure(state, device, 28, [&] { adam.update(1e-3); });
}

/// The norm, too, which reads g once more.
void AdamWStep(benchmark::State& state, DType dtype, Device device) {
  Arena arena(state.range(0), dtype, device);
  Adam adam(arena.groups, {.weight_decay = 0.1});
  arena.fill_gradients();
  measure(state, device, 32, [&] { adam.step(1e-3, {.max_norm = 1}); });
}

void SgdMomentum(benchmark::State& state, Device device) {
  Arena arena(state.range(0), DType::f32, device);
  Sgd sgd(arena.groups, {.momentum = 0.9});
  arena.fill_gradients();
  measure(state, device, 20, [&] { sgd.update(1e-3); });
}

void Norm(benchmark::State& state, Device device) {
  Generator random(1);
  Tensor g = normal({state.range(0)}, random, 0, 1, DType::f32, device);
  StepControl control(device);
  measure(state, device, 4, [&] { control.measure(g, {{{0, g.numel()}}}, false); });
}

void add(const char* name, void (*f)(benchmark::State&, Device), Device device) {
  benchmark::RegisterBenchmark((std::string(name) + (device.is_cuda() ? "/cuda" : "/cpu")).c_str(),
                               f, device)
      ->Arg(1'000'000)
      ->Arg(124'000'000)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

void add_all(Device device) {
  add("copy", Copy, device);
  add("norm", Norm, device);
  add(
      "AdamW/f32", [](auto& s, Device d) { AdamW(s, DType::f32, d); }, device);
  add(
      "AdamW/bf16", [](auto& s, Device d) { AdamW(s, DType::bf16, d); }, device);
  add(
      "norm+AdamW/f32", [](auto& s, Device d) { AdamWStep(s, DType::f32, d); }, device);
  add(
      "norm+AdamW/bf16", [](auto& s, Device d) { AdamWStep(s, DType::bf16, d); }, device);
  add("SGD momentum", SgdMomentum, device);
}

}  // namespace
}  // namespace gradus

int main(int argc, char** argv) {
  gradus::add_all(gradus::kCpu);
  if (gradus::cuda_device_count() > 0) gradus::add_all(gradus::kCuda);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
