#include "train/ranks.h"

#include <algorithm>

#include "parallel/process_grid.h"

namespace gradus::train {
Ranks::Ranks(const parallel::Communicator& all, const Settings& s) : world(all) {
  check(s.tp * s.dp == all.size(), "--tp ", s.tp, " × --dp ", s.dp, " are ", s.tp * s.dp,
        " ranks, but there are ", all.size());
  if (all.size() == 1) return;
  const parallel::ProcessGrid grid = parallel::model_grid(all, {.tp = int(s.tp)});
  tp = grid.group({"tp"});
  dp = grid.group({"dp"});
}

void throw_together(const parallel::Communicator& world, const std::string& fault) {
  const std::vector<std::string> faults = world.all_gather_text(fault);
  std::string all;
  for (size_t r = 0; r < faults.size(); ++r)
    if (!faults[r].empty())
      all += (all.empty() ? "rank " : "; rank ") + std::to_string(r) + ": " + faults[r];
  if (!all.empty()) throw Error(all);
}

bool any_of(const parallel::Communicator& world, bool mine) {
  const std::vector<int64_t> all = world.all_gather_values({mine ? 1 : 0});
  return std::find(all.begin(), all.end(), 1) != all.end();
}

std::string from_first(const parallel::Communicator& world, const std::string& text) {
  return world.all_gather_text(text)[0];
}

}  // namespace gradus::train
