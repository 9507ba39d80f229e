// A whole training step: forward, backward, clipped AdamW. Prints one JSON line, with the keys of
// bench/gpt_step_torch.py, which does the same work in PyTorch.
//
//   bench/gpt_step --device cuda --batch 64                                     GPT-2 124M, bf16
//   bench/gpt_step --device cuda --model gpt2-350m --batch 32 --graph
//   bench/gpt_step --device cuda --model llama-1.1b --batch 8 --breakdown
//   bench/gpt_step --layers 4 --dim 256 --heads 8 --seq 256 --batch 8 --vocab 256       on the CPU
//
// Steps follow each other without waiting for the device; on a GPU each is timed from the event
// behind the step before to its own. MFU counts 6 N + 6 L T C (causal) and 6 N + 12 L T C (full) FLOPs a
// token of all N parameters but an untied token table, as the PyTorch program does, of 989 TFLOP/s.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <optional>

#include "bench/gpt_step_options.h"
#include "bench/step_clock.h"
#include "core/allocator.h"
#include "core/cuda.h"
#include "core/cuda_graph.h"
#include "models/gpt.h"
#include "nn/init.h"
#include "nn/summary.h"
#include "ops/gemm_tuning.h"
#include "optim/adam.h"
#include "train/machine.h"
#include "train/profile.h"

using namespace gradus;
using bench::Options;
using nlohmann::ordered_json;

namespace {

/// The model, and a step of its training.
struct Training {
  const Options& o;
  Device device;
  Gpt gpt;
  optim::Adam adam;
  train::DeviceBatch batch;
  std::optional<CudaGraph> graph{};
  Tensor loss{};          // of the last step, on the device
  double enqueue_ms = 0;  // host time of all steps
  const optim::StepOptions update{.max_norm = 1};

  Gpt& placed() {
    gpt.to(device);
    nn::initialize(gpt, 1);  // the same numbers on every device
    gpt.cast(o.dtype == "bf16" ? DType::bf16 : DType::f32);
    return gpt;
  }

  Training(const Options& options, Device d)
      : o(options),
        device(d),
        gpt(options.model),
        adam(placed(), {.beta2 = 0.95, .weight_decay = 0.1}),
        batch(d, options.batch * options.accumulate, options.length) {
    if (o.graph) graph.emplace(device);
  }

  /// What is captured: all but the choice of the batch and the request of an update.
  void compute() {
    adam.zero_grad();
    Tensor total;
    for (int64_t m = 0; m < o.accumulate; ++m) {
      const int64_t first = m * o.batch;
      const Tensor part = gpt.loss(batch.inputs(first, o.batch), batch.targets(first, o.batch)) *
                          (1.0 / double(o.accumulate));
      part.backward();
      total = total ? total + part.detach() : part.detach();
    }
    loss = total;
    Scope scope("optimizer");
    adam.run(update);
  }

  void step(const train::Batch& ids) {
    batch.load(ids);
    const double start = bench::milliseconds();
    adam.request([&](int64_t) { return optim::Rates{3e-4, adam.weight_decay()}; }, update);
    graph ? graph->run_or_replay([&] { compute(); }) : compute();
    enqueue_ms += bench::milliseconds() - start;
  }
};

double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

ordered_json result_of(const Options& o, Training& t, std::vector<double> ms, double enqueue_ms,
                       double first_loss, double first_step_ms, const std::vector<double>& state) {
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2], tokens = double(t.batch.rows() * o.length);
  const int64_t parameters = nn::count_parameters(t.gpt).elements;
  const GptConfig& m = o.model;
  const double n = double(parameters - (m.tied ? 0 : m.vocab * m.width));
  const double attention = double(m.layers * m.width * o.length), rate = tokens / median * 1e3;
  const MemoryStats memory = memory_stats(t.device);
  const auto gib = [](int64_t bytes) { return rounded(double(bytes) / double(1 << 30), 2); };
  ordered_json line{{"peer", "gradus"},
                    {"gpu", train::machine_name(t.device)},
                    {"gpus", t.device.is_cuda() ? 1 : 0},
                    {"arch", o.arch},
                    {"layers", m.layers},
                    {"dim", m.width},
                    {"heads", m.heads},
                    {"kv_heads", m.key_value_heads()},
                    {"batch", o.batch},
                    {"seq", o.length},
                    {"vocab", m.vocab},
                    {"accum", o.accumulate},
                    {"precision", o.dtype == "bf16" ? "bf16_master" : o.dtype},
                    {"graph", o.graph},
                    {"gemm_tuned", !o.gemm_tuning.empty()},
                    {"tokens", o.tokens},
                    {"params", parameters},
                    {"ms", rounded(median, 3)},
                    {"ms_min", rounded(ms.front(), 3)},
                    {"ms_max", rounded(ms.back(), 3)},
                    {"host_enqueue_ms", rounded(enqueue_ms, 3)},
                    {"tokens_per_s", std::round(rate)},
                    {"peak_gib", gib(memory.peak)},
                    {"reserved_gib", gib(memory.reserved)},
                    {"first_loss", rounded(first_loss, 4)},
                    {"last_loss", rounded(t.loss.item(), 4)},
                    {"first_step_s", rounded(first_step_ms / 1e3, 1)}};
  if (t.device.is_cuda()) {
    line["mfu_causal"] = rounded(rate * (6 * n + 6 * attention) / 989e12, 4);
    line["mfu_full"] = rounded(rate * (6 * n + 12 * attention) / 989e12, 4);
  }
  if (t.graph) line["graph_nodes"] = t.graph->nodes();
  const char* kState[] = {"sm_mhz", "power_w", "temp_c"};
  for (size_t i = 0; i < state.size(); ++i) line[kState[i]] = state[i];
  return line;
}

/// Time by class of kernel, eagerly: a graph runs without the host, which names the ops.
train::Profile breakdown(const Options& o, Training& t, const std::vector<train::Batch>& batches) {
  const GptConfig& m = o.model;
  const train::StepSize size{{m.layers, m.width, o.length, m.vocab, m.heads, m.key_value_heads(),
                              m.inner_width(), m.activation == Activation::swiglu},
                             t.batch.rows(),
                             nn::count_parameters(t.gpt).elements,
                             o.dtype == "bf16" ? DType::bf16 : DType::f32};
  t.graph.reset();
  size_t i = 0;
  return train::profile_steps(
      t.device, [&] { t.step(batches[i++ % batches.size()]); }, 3, size, o.chrome);
}

void run(const Options& o) {
  train::use_threads(o.threads);
  std::optional<GemmTuning> tuning;
  if (!o.gemm_tuning.empty()) tuning.emplace(o.gemm_tuning);
  Training t(o, train::choose_device(o.device));
  std::vector<train::Batch> batches;
  for (uint64_t i = 0; i < 4; ++i) batches.push_back(bench::random_batch(o, 7 + i));
  const auto step = [&](int i) { t.step(batches[size_t(i) % batches.size()]); };

  const double begun = bench::milliseconds();
  step(0);
  const double first_loss = t.loss.item(), first_step_ms = bench::milliseconds() - begun;
  for (int i = 0; i < o.warmup; ++i) step(i);
  synchronize(t.device);
  reset_peak(t.device);
  t.enqueue_ms = 0;
  bench::StepClock clock(t.device);
  clock.mark();
  for (int i = 0; i < o.steps; ++i) {
    step(i);
    clock.mark();
  }
  const auto state =
      t.device.is_cuda() ? bench::gpu_state() : std::vector<double>();  // still running
  ordered_json line =
      result_of(o, t, clock.intervals(), t.enqueue_ms / o.steps, first_loss, first_step_ms, state);
  if (o.breakdown) {
    const train::Profile profile = breakdown(o, t, batches);
    for (int c = 0; c < train::kKernelClasses; ++c) {
      const char* name = train::name_of(train::KernelClass(c));
      line["ms_class"][name] = rounded(profile.ms[size_t(c)], 3);
      if (profile.floor) line["floor_class"][name] = rounded((*profile.floor)[size_t(c)], 3);
    }
    std::cerr << train::table_of(profile) << "\n";
    for (const Trace::Total& total : profile.totals)
      std::cerr << "  " << total.self / profile.steps << " ms  x" << total.count / profile.steps
                << "  " << total.activity.name
                << (total.activity.phase == Phase::backward ? " backward" : "") << "\n";
  }
  std::cout << line.dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) try {
  run(bench::parse(argc, argv));
} catch (const std::exception& e) {
  std::cerr << "gpt_step: " << e.what() << "\n";
  return 1;
}
