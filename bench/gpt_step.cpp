// A whole training step: forward, backward, clipped AdamW. Prints one JSON line, with the keys of
// bench/gpt_step_torch.py, which does the same work in PyTorch.
//
//   bench/gpt_step --device cuda --batch 64                                     GPT-2 124M, bf16
//   bench/gpt_step --device cuda --model gpt2-350m --batch 32 --graph
//   bench/gpt_step --device cuda --model llama-1.1b --batch 8 --breakdown
//   bench/gpt_step --device cuda --model llama-1.1b --batch 8 --tp 2 --sp              on two GPUs
//   bench/gpt_step --device cuda --batch 64 --dp 2 --zero                              64 on each of two
//   bench/gpt_step --layers 4 --dim 256 --heads 8 --seq 256 --batch 8 --vocab 256       on the CPU
//
// Steps follow each other without waiting for the device; on a GPU each is timed from the event
// behind the step before to its own. MFU counts 6 N + 6 L T C (causal) and 6 N + 12 L T C (full) FLOPs a
// token of all N parameters but an untied token table, as the PyTorch program does, of 989 TFLOP/s and GPU.
// Several ranks are threads, one GPU each; what is printed is the first one's.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "bench/gpt_training.h"
#include "core/allocator.h"
#include "core/cuda.h"
#include "ops/gemm_tuning.h"
#include "parallel/run_ranks.h"
#include "train/machine.h"
#include "train/profile.h"

using namespace gradus;
using bench::Options;
using bench::Training;
using nlohmann::ordered_json;

namespace {

double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

ordered_json result_of(const Options& o, Training& t, std::vector<double> ms, double enqueue_ms,
                       double first_loss, double first_step_ms, const std::vector<double>& state) {
  const double last_loss = t.mean_loss();
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2], tokens = double(t.batch.rows() * o.length * o.dp);
  const int64_t parameters = t.parameters();
  const GptConfig& m = o.model;
  const double n = double(parameters - (m.tied ? 0 : m.vocab * m.width));
  const double attention = double(m.layers * m.width * o.length), rate = tokens / median * 1e3;
  const MemoryStats memory = memory_stats(t.device);
  const auto gib = [](int64_t bytes) { return rounded(double(bytes) / double(1 << 30), 2); };
  ordered_json line{{"peer", "gradus"},
                    {"gpu", train::machine_name(t.device)},
                    {"gpus", t.device.is_cuda() ? o.ranks() : 0},
                    {"dp", o.dp},
                    {"tp", o.tp},
                    {"sp", o.sequence},
                    {"zero", o.zero},
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
                    {"last_loss", rounded(last_loss, 4)},
                    {"first_step_s", rounded(first_step_ms / 1e3, 1)}};
  if (t.device.is_cuda()) {
    line["mfu_causal"] = rounded(rate * (6 * n + 6 * attention) / 989e12 / o.ranks(), 4);
    line["mfu_full"] = rounded(rate * (6 * n + 12 * attention) / 989e12 / o.ranks(), 4);
  }
  if (t.finalizer) line["held_buckets"] = t.finalizer->held_back();
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
                             t.parameters(),
                             o.dtype == "bf16" ? DType::bf16 : DType::f32};
  t.graph.reset();
  size_t i = 0;
  train::Profile profile = train::profile_steps(
      t.device, [&] { t.step(batches[i++ % batches.size()]); }, 3, size,
      t.grid.world().rank() == 0 ? o.chrome : "");
  if (o.ranks() > 1) profile.floor.reset();  // which is that of one rank
  return profile;
}

void add_breakdown(const train::Profile& profile, ordered_json& line) {
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

/// How long, in ms of a step, the stream of each rank waits for others, by world rank. It waits for traffic and,
/// on all but the slowest GPU, for slower ones: the least of them is the traffic.
std::vector<double> exposed_by_rank(const train::Profile& profile,
                                    const parallel::Communicator& world) {
  const double ms = profile.ms[size_t(train::KernelClass::communication)];
  std::vector<double> all;
  for (int64_t us : world.all_gather_values({std::llround(ms * 1e3)}))
    all.push_back(double(us) / 1e3);
  return all;
}

void run_rank(const Options& o, Device device, const parallel::Communicator& world) {
  Training t(o, device, world);
  std::vector<train::Batch> batches;
  for (uint64_t i = 0; i < 4; ++i)
    batches.push_back(bench::random_batch(o, 7 + i + 4 * uint64_t(t.groups.dp.rank())));
  const auto step = [&](int i) { t.step(batches[size_t(i) % batches.size()]); };

  const TimeMark begun(kCpu);
  step(0);
  const double first_loss = t.mean_loss(), first_step_ms = TimeMark(kCpu).since(begun);
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
  const bool first = world.rank() == 0;
  const auto state =
      t.device.is_cuda() && first ? bench::gpu_state() : std::vector<double>();  // still running
  ordered_json line =
      result_of(o, t, clock.intervals(), t.enqueue_ms / o.steps, first_loss, first_step_ms, state);
  if (o.breakdown) {
    const train::Profile profile = breakdown(o, t, batches);
    if (first) add_breakdown(profile, line);
    if (o.ranks() > 1) line["exposed_ms_by_rank"] = exposed_by_rank(profile, world);
  }
  if (first) std::cout << line.dump() << std::endl;
}

void run(const Options& o) {
  train::use_threads(o.threads);
  std::optional<GemmTuning> tuning;
  if (!o.gemm_tuning.empty()) tuning.emplace(o.gemm_tuning);
  const Device device = train::choose_device(o.device);
  if (o.ranks() == 1) return run_rank(o, device, {});
  parallel::run_ranks(o.ranks(), [&](parallel::Communicator world) {
    const auto index = int8_t(device.index + world.rank());
    run_rank(o, device.is_cuda() ? Device{device.type, index} : device, world);
  });
}

}  // namespace

int main(int argc, char** argv) try {
  run(bench::parse(argc, argv));
} catch (const std::exception& e) {
  std::cerr << "gpt_step: " << e.what() << "\n";
  return 1;
}
