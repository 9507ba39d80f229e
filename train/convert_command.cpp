#include <CLI/CLI.hpp>
#include <iostream>

#include "core/check.h"
#include "train/commands.h"
#include "train/hf_convert.h"

namespace gradus::train {
namespace {

struct ConvertRequest {
  std::string from_hf, to, from, to_hf;
};

void convert(const ConvertRequest& r) {
  const bool in = !r.from_hf.empty() && !r.to.empty(), out = !r.from.empty() && !r.to_hf.empty();
  const int given = !r.from_hf.empty() + !r.to.empty() + !r.from.empty() + !r.to_hf.empty();
  check(in != out && given == 2,
        "either --from-hf DIR --to RUN, or --from RUN --to-hf DIR is needed");
  if (out) {
    export_hf(r.from, r.to_hf);
    std::cout << "written: " << r.to_hf << "/config.json and model.safetensors" << std::endl;
    return;
  }
  std::cout << "saved " << import_hf(r.from_hf, r.to) << "\n"
            << "to let it write: gradus generate --checkpoint " << r.to << " --prompt \"ID ID …\"\n"
            << "to train it on:  gradus train --init " << r.to << " --data FILE.bin" << std::endl;
}

}  // namespace

int convert_command(int argc, const char* const* argv) {
  ConvertRequest request;
  CLI::App app("Converts models from and to the form of Hugging Face's transformers.",
               "gradus convert");
  app.add_option("--from-hf", request.from_hf, "directory with config.json and model.safetensors");
  app.add_option("--to", request.to, "the run to make: the weights become its step 0");
  app.add_option("--from", request.from, "a checkpoint, or a run: its newest one");
  app.add_option("--to-hf", request.to_hf, "directory for config.json and model.safetensors");
  app.footer(
      "GPT-2 (gpt2), Llama (llama, unscaled rotary positions) and BERT (bert, with both heads).\n"
      "Weights and sizes are converted, tokenizers are not: a converted model reads and writes\n"
      "token ids, and is trained on token files that the model's own tokenizer made.");
  return run_command(app, argc, argv, [&] { convert(request); });
}

}  // namespace gradus::train
