#pragma once
// What bench/gpt_step measures: a model, its batches.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/random.h"
#include "models/config.h"
#include "train/device_batch.h"
#include "train/machine.h"

namespace gradus::bench {

struct Options {
  GptConfig model = GptConfig::preset("gpt2-124m");
  int64_t batch = 8, length = 0, accumulate = 1;
  int steps = 30, warmup = 10, threads = 0;
  std::string arch = "gpt2", device = "cpu", dtype, tokens = "uniform", chrome, gemm_tuning;
  bool graph = false, breakdown = false;
  int dp = 1, tp = 1;  // ranks, which are threads of this process: each with a GPU, or on the CPU
  bool sequence = false, zero = false;
  int hold = -1;  // buckets of gradients, see parallel/send_schedule.h; −1: as the first steps show
  int ranks() const { return dp * tp; }
};

// The sizes of a preset or a family, then whatever was given by itself.
inline void choose_model(Options& o, const std::string& preset, const GptConfig& given) {
  const bool llama = o.arch == "llama";
  o.model = GptConfig::preset(!preset.empty() ? preset : llama ? "llama-1.1b" : "gpt2-124m");
  o.arch = o.model.activation == Activation::swiglu ? "llama" : "gpt2";
  if (o.arch == "gpt2" && o.model.vocab == 50257) o.model.vocab = 50304;  // a multiple of 128
  const auto take = [](int64_t& to, int64_t value) { to = value > 0 ? value : to; };
  if (given.width > 0 && given.ffn == 0) o.model.ffn = 0;
  if (given.heads > 0 && given.kv_heads == 0) o.model.kv_heads = 0;
  take(o.model.layers, given.layers), take(o.model.width, given.width);
  take(o.model.heads, given.heads), take(o.model.kv_heads, given.kv_heads);
  take(o.model.ffn, given.ffn), take(o.model.vocab, given.vocab);
  take(o.model.max_length, o.length);
  o.length = o.length > 0 ? o.length : o.model.max_length;
}

inline Options parse(int argc, char** argv) {
  Options o;
  std::string preset;
  GptConfig given{.layers = 0, .width = 0, .heads = 0, .vocab = 0};
  CLI::App app{"times a training step of a GPT"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--model", preset, "a preset");
  app.add_option("--arch", o.arch)->check(CLI::IsMember({"gpt2", "llama"}));
  app.add_option("--layers", given.layers);
  app.add_option("--dim,--width", given.width);
  app.add_option("--heads", given.heads);
  app.add_option("--kv-heads", given.kv_heads);
  app.add_option("--ffn", given.ffn);
  app.add_option("--vocab", given.vocab);
  app.add_option("--seq,--length", o.length);
  app.add_option("--batch", o.batch, "sequences in a micro-step");
  app.add_option("--accum", o.accumulate, "micro-steps");
  app.add_option("--steps", o.steps);
  app.add_option("--warmup", o.warmup);
  app.add_option("--threads", o.threads);
  app.add_option("--gemm-tuning", o.gemm_tuning, "file of timed choices, see ops/gemm_tuning.h");
  app.add_option("--tokens", o.tokens)->check(CLI::IsMember({"uniform", "zipf"}));
  app.add_option("--device", o.device, train::kDeviceHelp);
  app.add_option("--dtype", o.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--dp", o.dp, "ranks that have other sequences: --batch for each");
  app.add_option("--tp", o.tp, "ranks that a model is cut over");
  app.add_flag("--sp", o.sequence, "with --tp: cut the tokens outside of its matrices, too");
  app.add_flag("--zero", o.zero, "with --dp: each rank updates a part (ZeRO-1)");
  app.add_option("--hold", o.hold,
                 "with --dp: so many buckets of gradients wait until the one after them is ready; "
                 "default: as the first steps show, without --tp")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--graph", o.graph, "capture the step in a CUDA graph");
  app.add_flag("--breakdown", o.breakdown, "time by class of kernel, in a run of its own");
  app.add_option("--trace", o.chrome, "with --breakdown: write a chrome trace to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e));
  }
  choose_model(o, preset, given);
  check(o.dp >= 1 && o.tp >= 1, "--dp and --tp are numbers of ranks");
  check(!o.graph || o.ranks() == 1, "--graph is for one rank");
  if (o.dtype.empty()) o.dtype = o.device == "cpu" ? "f32" : "bf16";
  return o;
}

/// Random ids below `count`, uniform or with frequencies like those of text: P(i) ∝ 1/(i + 2.7).
inline std::vector<int32_t> token_ids(const Options& o, int64_t n, int64_t count, uint64_t seed) {
  const double low = std::log(2.7), high = std::log(double(count) + 2.7);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  const Philox random{seed, 0};
  for (size_t i = 0; i < ids.size(); ++i) {
    const double u = random.uniform<double>(i);
    const double id =
        o.tokens == "zipf" ? std::exp(low + u * (high - low)) - 2.7 : u * double(count);
    ids[i] = int32_t(std::clamp<int64_t>(int64_t(id), 0, count - 1));
  }
  return ids;
}

/// Windows of T + 1 random tokens, one a row.
inline train::Batch random_batch(const Options& o, uint64_t seed) {
  const int64_t rows = o.batch * o.accumulate, T = o.length;
  const auto ids = token_ids(o, rows * (T + 1), std::min<int64_t>(o.model.vocab, 50257), seed);
  train::Batch b;
  b.rows = rows, b.length = T;
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = ids.begin() + r * (T + 1);
    b.inputs.insert(b.inputs.end(), row, row + T);
    b.targets.insert(b.targets.end(), row + 1, row + T + 1);
  }
  return b;
}

}  // namespace gradus::bench
