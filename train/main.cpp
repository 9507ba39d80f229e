// gradus: train a language model, let it write, look at its checkpoints.
#include <CLI/CLI.hpp>
#include <iostream>

#include "train/commands.h"

namespace {

struct Command {
  const char *name, *help;
  int (*run)(int argc, const char* const* argv);
};
constexpr Command kCommands[] = {
    {"train", "train a GPT or a BERT on a text, or on token files", gradus::train::train_command},
    {"generate", "let a trained model write", gradus::train::generate_command},
    {"info", "print what is in a checkpoint", gradus::train::info_command},
    {"diff", "compare the gradients of two checkpoints", gradus::train::diff_command},
    {"convert", "convert models from and to Hugging Face's form", gradus::train::convert_command},
    {"report", "make a page with the curves of runs", gradus::train::report_command},
    {"schedule", "draw schedules of the learning rate", gradus::train::schedule_command},
};

}  // namespace

int main(int argc, char** argv) {
  for (const Command& command : kCommands)
    if (argc > 1 && argv[1] == std::string(command.name)) return command.run(argc - 1, argv + 1);

  if (argc > 1 && argv[1][0] != '-') {
    std::cerr << "gradus: there is no command '" << argv[1] << "'; there are";
    for (const Command& command : kCommands) std::cerr << ' ' << command.name;
    std::cerr << std::endl;
    return 2;
  }
  CLI::App app(
      "gradus: automatic differentiation and the training of small language models.\n"
      "Each command has its own --help.",
      "gradus");
  app.require_subcommand(1);
  for (const Command& command : kCommands) app.add_subcommand(command.name, command.help);
  return gradus::train::run_command(app, argc, argv, [] {});
}
