#include "train/layouts.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "parallel/run_ranks.h"
#include "train/step.h"
#include "train/train_rank.h"

namespace gradus::train {
namespace {

// A new directory, removed at the end.
class Scratch {
 public:
  Scratch() : path_((std::filesystem::temp_directory_path() / "gradus_layouts_XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) fail_system("make", path_);
  }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool fits(const Settings& s) {
  try {
    validate(s);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void print_row(std::ostream& out, const Settings& s, const ConsistencyReport& report) {
  double bound = 0, numbers = 0;
  for (const TensorDifference& t : report.tensors) bound = std::max(bound, t.bound);
  for (const NumberDifference& n : report.numbers) numbers = std::max(numbers, n.rel);
  char text[160];
  std::snprintf(text, sizeof(text), "%-40s %9.2e %9.2e %9.2e %9.2e  %s\n", layout_text(s).c_str(),
                report.worst_rel(), report.worst_row_rel(), numbers, bound,
                report.agrees() ? "ok" : "DIFFERS");
  out << text;
  if (!report.agrees()) print(out, report, true);
  out << std::flush;
}

}  // namespace

std::vector<Settings> layouts_of(const Settings& settings, int64_t most,
                                 const std::vector<int64_t>& micro_batches) {
  std::vector<Settings> list;
  const auto add = [&](int64_t tp, int64_t dp, bool sp, bool zero, int64_t parts) {
    if ((sp && tp == 1) || (zero && dp == 1)) return;
    Settings s = settings;
    s.tp = tp, s.dp = dp, s.sp = sp, s.zero = zero, s.accumulate = parts;
    if (fits(s)) list.push_back(s);
  };
  for (int64_t ranks = 1; ranks <= most; ranks *= 2)
    for (int64_t tp = 1; tp <= ranks; tp *= 2)
      for (bool sp : {false, true})
        for (bool zero : {false, true})
          for (int64_t parts : micro_batches) add(tp, ranks / tp, sp, zero, parts);
  return list;
}

std::string layout_text(const Settings& s) {
  std::string text = "tp " + std::to_string(s.tp) + " × dp " + std::to_string(s.dp);
  if (s.sp) text += ", sp";
  if (s.zero) text += ", zero";
  if (s.accumulate > 1) text += ", " + std::to_string(s.accumulate) + " micro-batches";
  return text;
}

CheckpointReader train_layout(const Settings& settings, const TrainingData& data, int64_t steps,
                              const std::string& directory, const std::string& device) {
  std::string path;
  parallel::run_ranks(int(settings.tp * settings.dp), [&](const parallel::Communicator& world) {
    const Ranks ranks(world, settings);
    RunState state(settings, device_of(device, world), nullptr, ranks);
    nlohmann::json last;
    for (int64_t i = 0; i < steps; ++i) last = last_step_of(train_step(state, data, settings));
    check_same_parameters(state.optimizer->flat(), ranks.groups());
    const std::string saved = state.save(directory, settings, last, {});
    if (ranks.is_first()) path = saved;
  });
  return CheckpointReader(path);
}

Settings for_gradients(Settings s) {
  s.optimizer = "adamw";
  s.momentum = s.beta1 = s.beta2 = s.clip = 0;
  return s;
}

bool check_layouts(const std::vector<Settings>& layouts, const TrainingData& data,
                   std::ostream& out, const std::string& device) {
  check(!layouts.empty(), "the settings fit no layout");
  const Scratch scratch;
  const CheckpointReader alone = train_layout(layouts[0], data, 1, scratch.path() + "/0", device);
  char head[160];
  std::snprintf(head, sizeof(head), "%-39s %9s %9s %9s %9s\n", "layout, against one rank", "rel",
                "row rel", "loss…", "bound");
  out << head;
  size_t differ = 0;
  for (size_t i = 1; i < layouts.size(); ++i) {
    const std::string directory = scratch.path() + "/" + std::to_string(i);
    const auto report = diff(alone, train_layout(layouts[i], data, 1, directory, device));
    print_row(out, layouts[i], report);
    differ += report.agrees() ? 0 : 1;
  }
  out << layouts.size() - 1 - differ << " of " << layouts.size() - 1
      << " layouts have the gradients, loss and norm of one rank" << std::endl;
  return differ == 0;
}

}  // namespace gradus::train
