#include "optim/fused_update.h"

namespace gradus::optim {

std::vector<Pass> passes_of(const FlatBuffer& flat, int first, int last) {
  std::vector<Pass> passes;
  const std::vector<Bucket>& buckets = flat.layout().buckets();
  int group = -1;  // of the last segment
  for (const int i : flat.order) {
    const Bucket& b = buckets[size_t(i)];
    if (b.group < first || b.group >= last) continue;
    const bool goes_on = !passes.empty() && passes.back().segments.shift == b.shift &&
                         passes.back().buckets.back() == i - 1;
    if (!goes_on || (b.group != group && passes.back().segments.count == Segments::kMost)) {
      passes.emplace_back();
      passes.back().segments.shift = b.shift;
      group = -1;
    }
    Segments& segments = passes.back().segments;
    if (b.group != group)
      segments.at[segments.count++] =
          Segment({b.own.begin - b.shift, 0}, flat.groups()[size_t(b.group)]);
    segments.at[segments.count - 1].end = b.own.end - b.shift;
    group = b.group;
    passes.back().buckets.push_back(i);
  }
  return passes;
}

}  // namespace gradus::optim
