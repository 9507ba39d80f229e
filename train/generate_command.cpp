#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "train/commands.h"
#include "train/generate.h"
#include "train/machine.h"
#include "train/run_directory.h"
#include "train/run_state.h"
#include "train/tokenizer.h"

namespace gradus::train {
namespace {

struct GenerateRequest {
  std::string checkpoint, prompt = "\n", device = "auto";
  int64_t tokens = 400, seed = 1;
  int threads = 0;
  Sampling sampling{.temperature = 0.8};
};

void add_options(CLI::App& app, GenerateRequest& r) {
  app.add_option("--checkpoint", r.checkpoint, "a checkpoint, or a run: its newest one")
      ->required();
  app.add_option("--prompt", r.prompt,
                 "text to continue, or ids for a model of a token file (default: a new line)");
  app.add_option("--tokens", r.tokens, "tokens to write (default: 400)");
  app.add_option("--temperature", r.sampling.temperature,
                 "1: as the model says; lower: likelier tokens; 0: the likeliest (default: 0.8)");
  app.add_option("--top-k", r.sampling.top_k, "only the k likeliest tokens (default: 0, all)");
  app.add_option("--top-p", r.sampling.top_p,
                 "only the likeliest tokens that together have this probability (default: 1)");
  app.add_option("--seed", r.seed, "the same seed writes the same text (default: 1)");
  app.add_option("--device", r.device, kDeviceHelp);
  app.add_option("--threads", r.threads, "CPU threads (default: one for each core)");
}

void generate(const GenerateRequest& r) {
  check_sampling(r.sampling);
  check(r.tokens >= 0, "--tokens must not be negative, got ", r.tokens);
  const Device device = choose_device(r.device);
  use_threads(r.threads);
  const CheckpointReader reader(find_checkpoint(r.checkpoint));
  const Settings settings = settings_of(reader);
  const std::string run = std::filesystem::path(reader.path()).parent_path().string();
  const auto tokenizer = tokenizer_of(settings, run.empty() ? "." : run);
  const std::vector<int32_t> prompt = tokenizer->encode(r.prompt);

  LanguageModel model(settings, device);
  model.place();
  load_state(reader, parameters_of(model.module()), Unexpected::ignore);
  TextGenerator generator(model, prompt, r.sampling, uint64_t(r.seed));
  std::cout << printable(tokenizer->decode(prompt));
  for (int64_t i = 0; i < r.tokens; ++i)
    std::cout << printable(tokenizer->decode(generator.next())) << std::flush;
  std::cout << std::endl;
}

}  // namespace

int generate_command(int argc, const char* const* argv) {
  GenerateRequest request;
  CLI::App app("Lets a trained model write.", "gradus generate");
  add_options(app, request);
  return run_command(app, argc, argv, [&] { generate(request); });
}

}  // namespace gradus::train
