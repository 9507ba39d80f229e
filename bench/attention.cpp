// Attention on a GPU, forward and backward: milliseconds and TFLOP/s of the kernels by wgmma and of those by
// mma.sync, beside cuDNN.
//
//   bench/attention [--samples 15] [--only text]
//
// bf16, causal unless it says full, queries, keys and values packed in one tensor. FLOPs of causal attention
// count the lower triangle alone, those of a backward 2.5 times the forward. A sample is five calls on inputs
// that take turns and are larger than the L2 cache together, between two events; the median is shown. cuDNN
// 9.19 through PyTorch 2.11, milliseconds, was measured the same way on an H200.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "bench/step_clock.h"
#include "core/cuda.h"
#include "core/delay.h"
#include "ops/flash_attention.h"
#include "ops/ops.h"

using namespace gradus;

namespace {

struct Shape4 {
  int64_t B, T, groups, members, d;
  bool causal;
  double cudnn_forward, cudnn_backward;  // 0: not measured
};

constexpr Shape4 kShapes[] = {
    {64, 1024, 12, 1, 64, true, 0.296, 1.016}, {16, 1024, 12, 1, 64, true, 0.085, 0.277},
    {4, 1024, 12, 1, 64, true, 0, 0},          {16, 1024, 12, 1, 64, false, 0, 0},
    {8, 2048, 4, 8, 64, true, 0.347, 1.090},   {16, 1024, 16, 1, 128, true, 0.157, 0.535},
    {8, 2048, 16, 1, 128, true, 0.264, 0.824}, {4, 4096, 16, 1, 128, true, 0.475, 1.411},
    {2, 8192, 16, 1, 128, true, 0.894, 2.656}, {8, 2048, 16, 1, 128, false, 0, 0},
};

struct Data {
  Tensor qkv, dqkv, packed_o, packed_d_o, lse;
  FlashInputs in;
  Tensor o, d_o;
  FlashGradients to;

  explicit Data(const Shape4& s, uint64_t seed) {
    Generator g(seed);
    const auto numbers = [&](int64_t width) {
      return normal({s.B, s.T, s.groups, width, s.d}, g, 0, 1, DType::bf16, kCuda);
    };
    const auto heads = [](const Tensor& x, int64_t first, int64_t n) {
      return permute(slice(x, 3, first, first + n), {0, 2, 3, 1, 4});
    };
    const auto head = [&](const Tensor& x, int64_t i) { return select(heads(x, i, 1), 2, 0); };
    qkv = numbers(s.members + 2), dqkv = empty_like(qkv);
    packed_d_o = numbers(s.members), packed_o = empty_like(packed_d_o);
    lse = empty({s.B, s.groups * s.members, s.T}, DType::f32, kCuda);
    in = {heads(qkv, 0, s.members), head(qkv, s.members), head(qkv, s.members + 1), s.causal,
          1 / std::sqrt(double(s.d))};
    o = heads(packed_o, 0, s.members), d_o = heads(packed_d_o, 0, s.members);
    to = {heads(dqkv, 0, s.members), head(dqkv, s.members), head(dqkv, s.members + 1)};
    flash_forward(in, o, lse);
  }
};

/// Median milliseconds of f(data), the sets taking turns.
template <class F>
double time_of(std::vector<Data>& sets, int samples, F f) {
  constexpr int kCalls = 5;
  std::vector<double> times;
  size_t turn = 0;
  for (Data& d : sets) f(d);
  for (int i = 0; i < samples; ++i) {
    bench::StepClock clock(kCuda);
    delay(kCuda, 0.5);  // the launches get ahead of the device
    clock.mark();
    for (int call = 0; call < kCalls; ++call) f(sets[turn++ % sets.size()]);
    clock.mark();
    times.push_back(clock.intervals()[0] / kCalls);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void print(double ms, double flops) {
  ms > 0 ? std::printf("  %6.3f (%3.0f)", ms, flops / ms * 1e-9) : std::printf("  %6s      ", "–");
}

}  // namespace

int main(int argc, char** argv) try {
  int samples = 15;
  std::string only;
  CLI::App app{"times flash attention on a GPU"};
  app.add_option("--samples", samples);
  app.add_option("--only", only, "shapes whose name contains this");
  CLI11_PARSE(app, argc, argv);
  if (cuda_device_count() == 0) {
    std::cout << "bench/attention needs a GPU\n";
    return 0;
  }
  std::printf(
      "ms (TFLOP/s)                 forward: ours, mma.sync, cuDNN                  backward: the "
      "same\n");
  for (const Shape4& s : kShapes) {
    char name[64];
    std::snprintf(name, sizeof name, "B%d T%d H%d/%d d%d%s", int(s.B), int(s.T),
                  int(s.groups * s.members), int(s.groups), int(s.d), s.causal ? "" : " full");
    if (std::string(name).find(only) == std::string::npos) continue;
    std::vector<Data> sets;
    for (uint64_t seed = 1; seed <= 3; ++seed) sets.emplace_back(s, seed);
    const double flops =
        4.0 * double(s.B * s.groups * s.members * s.T * s.T * s.d) * (s.causal ? 0.5 : 1);
    std::printf("%-24s", name);
    print(time_of(sets, samples, [](Data& d) { flash_forward(d.in, d.o, d.lse); }), flops);
    print(time_of(sets, samples, [](Data& d) { flash_forward_mma(d.in, d.o, d.lse); }), flops);
    print(s.cudnn_forward, flops);
    print(time_of(sets, samples, [](Data& d) { flash_backward(d.in, d.o, d.lse, d.d_o, d.to); }),
          2.5 * flops);
    print(
        time_of(sets, samples, [](Data& d) { flash_backward_mma(d.in, d.o, d.lse, d.d_o, d.to); }),
        2.5 * flops);
    print(s.cudnn_backward, 2.5 * flops);
    std::printf("\n");
    std::fflush(stdout);
  }
} catch (const std::exception& e) {
  std::cerr << "attention: " << e.what() << "\n";
  return 1;
}
