#include "train/writers.h"

#include <algorithm>
#include <vector>

namespace gradus::train {

Writers::Writers(std::span<const nn::NamedParameter> parameters, int tp_ranks, int dp_ranks) {
  std::vector<const nn::NamedParameter*> largest_first;
  for (const nn::NamedParameter& p : parameters) largest_first.push_back(&p);
  std::stable_sort(largest_first.begin(), largest_first.end(), [](const auto* a, const auto* b) {
    return a->parameter.numel() > b->parameter.numel();
  });
  // Elements that rank (t, d) has to write. Ranks of one d write equal parts of what is cut.
  std::vector<int64_t> load(size_t(tp_ranks) * size_t(dp_ranks), 0);
  const auto least = [&](int step) {
    size_t best = 0;
    for (size_t r = 0; r < load.size(); r += size_t(step))
      if (load[r] < load[best]) best = r;
    return int(best);
  };
  for (const nn::NamedParameter* p : largest_first) {
    const bool is_cut = p->parameter.shard.dim >= 0;
    const int rank = least(is_cut ? tp_ranks : 1), dp = rank / tp_ranks;
    writers_[p->name] = {is_cut ? -1 : rank % tp_ranks, dp};
    for (int t = 0; t < tp_ranks; ++t)
      if (is_cut || t == rank % tp_ranks) load[size_t(dp * tp_ranks + t)] += p->parameter.numel();
  }
}

bool Writers::writes(const std::string& name, int tp_rank, int dp_rank, bool is_sliced) const {
  const Writer& writer = writers_.at(name);
  return (writer.tp < 0 || writer.tp == tp_rank) && (is_sliced || writer.dp == dp_rank);
}

}  // namespace gradus::train
