#include <CLI/CLI.hpp>
#include <iostream>

#include "train/checkpoint_diff.h"
#include "train/commands.h"
#include "train/run_directory.h"
#include "train/run_state.h"

namespace gradus::train {
namespace {

struct DiffRequest {
  std::string left, right;
  DiffOptions options;
  bool only_failures = false;
};

void compare(const DiffRequest& r) {
  const CheckpointReader left(find_checkpoint(r.left)), right(find_checkpoint(r.right));
  std::cout << "left   " << left.path() << "\nright  " << right.path() << "\n";
  if (r.options.kind == "m")
    for (const CheckpointReader* side : {&left, &right})
      for (const std::string& caveat : gradient_caveats(settings_of(*side)))
        std::cout << "warning: " << side->path() << ": " << caveat << "\n";
  const ConsistencyReport report = diff(left, right, r.options);
  print(std::cout, report, r.only_failures);
  check(report.agrees(), "the checkpoints differ");
}

}  // namespace

int diff_command(int argc, const char* const* argv) {
  DiffRequest request;
  CLI::App app(
      "Compares the gradients of two checkpoints that ought to agree: tensor by tensor and row by "
      "row, with the loss, the norm before clipping and the number of targets. Adam's first moment "
      "is the gradient of the last step where it was trained with --beta1 0 --beta2 0; train "
      "without clipping (--clip 0).",
      "gradus diff");
  app.add_option("LEFT", request.left, "the reference: a checkpoint, or a run: its newest one")
      ->required();
  app.add_option("RIGHT", request.right, "another one of the same step")->required();
  app.add_option("--kind", request.options.kind,
                 "what is compared: m (default), v or master of the optimizer, or parameters");
  app.add_option("--bound", request.options.bound,
                 "largest relative difference (default: k·1.03^(layers above)·ε of the type)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--only-failures", request.only_failures, "list only what differs");
  app.footer(
      "Exit code: 0 when they agree, 1 when they differ or cannot be compared, 2 for wrong "
      "options.");
  return run_command(app, argc, argv, [&] { compare(request); });
}

}  // namespace gradus::train
