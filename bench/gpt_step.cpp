// A whole training step: forward, backward, clipped AdamW. Prints one JSON line, with the keys of
// bench/gpt_step_torch.py, which does the same work in PyTorch.
//
//   build/cpu/bench/gpt_step --layers 4 --width 256 --heads 8 --length 256 --batch 8 --vocab 256
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "core/allocator.h"
#include "core/cuda.h"
#include "models/gpt.h"
#include "nn/init.h"
#include "optim/adam.h"

using namespace gradus;

namespace {

double now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

struct Options {
  GptConfig model{.layers = 4, .width = 256, .heads = 8, .vocab = 256, .max_length = 256};
  int64_t batch = 8, length = 256;
  int steps = 20, warmup = 3, threads = 2;
  std::string preset, device = "cpu", dtype = "f32";
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app{"times a training step of a GPT"};
  app.add_option("--model", o.preset, "a preset instead of the sizes");
  app.add_option("--layers", o.model.layers);
  app.add_option("--width", o.model.width);
  app.add_option("--heads", o.model.heads);
  int64_t vocab = 0;
  app.add_option("--vocab", vocab);
  app.add_option("--batch", o.batch);
  app.add_option("--length", o.length);
  app.add_option("--steps", o.steps);
  app.add_option("--threads", o.threads);
  app.add_option("--device", o.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--dtype", o.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e));
  }
  if (!o.preset.empty()) o.model = GptConfig::preset(o.preset);
  if (vocab) o.model.vocab = vocab;
  o.model.max_length = std::max(o.model.max_length, o.length);
  return o;
}

Tensor random_ids(const Options& o, Generator& g, Device device) {
  Tensor u = uniform({o.batch, o.length}, g, 0, double(o.model.vocab));
  return to(cast(cast(u, DType::i64), DType::i32), device);
}

}  // namespace

int main(int argc, char** argv) try {
  Options o = parse(argc, argv);
  omp_set_num_threads(o.threads);
  Device device = o.device == "cuda" ? kCuda : kCpu;
  Gpt gpt(o.model);
  nn::initialize(gpt, 1);
  gpt.to(device);
  if (o.dtype == "bf16") gpt.cast(DType::bf16);
  optim::Adam adam(gpt, {.beta2 = 0.95, .weight_decay = 0.1});
  Generator data(7);
  Tensor ids = random_ids(o, data, device), targets = random_ids(o, data, device);

  std::vector<double> times;
  double first = 0, last = 0;
  for (int step = 0; step < o.warmup + o.steps; ++step) {
    double start = now();
    adam.zero_grad();
    Tensor loss = gpt.loss(ids, targets);
    loss.backward();
    adam.step(3e-4, {.max_norm = 1});
    last = loss.item();
    if (step == 0) first = last;
    if (step >= o.warmup) times.push_back(now() - start);
  }
  std::sort(times.begin(), times.end());
  double median = times[times.size() / 2];
  nlohmann::ordered_json line{
      {"peer", "gradus"},          {"device", o.device},
      {"layers", o.model.layers},  {"dim", o.model.width},
      {"heads", o.model.heads},    {"batch", o.batch},
      {"seq", o.length},           {"vocab", o.model.vocab},
      {"precision", o.dtype},      {"threads", o.threads},
      {"ms", median},              {"ms_min", times.front()},
      {"ms_max", times.back()},    {"tokens_per_s", double(o.batch * o.length) / median * 1000},
      {"peak_gib", double(memory_stats(device).peak) / double(1 << 30)},
      {"first_loss", first},       {"last_loss", last}};
  std::cout << line.dump() << "\n";
} catch (const std::exception& e) {
  std::cerr << "gpt_step: " << e.what() << "\n";
  return 1;
}
