#include "optim/fused_update.h"

namespace gradus::optim {

std::vector<Segments> segments_of(const FlatBuffer& flat, int first, int last) {
  std::vector<Segments> passes;
  int group = -1;  // of the last segment
  for (const Bucket& b : flat.layout().buckets()) {
    if (b.group < first || b.group >= last) continue;
    const bool goes_on = !passes.empty() && passes.back().shift == b.shift;
    if (!goes_on || (b.group != group && passes.back().count == Segments::kMost)) {
      passes.emplace_back();
      passes.back().shift = b.shift;
      group = -1;
    }
    Segments& pass = passes.back();
    if (b.group != group)
      pass.at[pass.count++] = Segment({b.own.begin - b.shift, 0}, flat.groups()[size_t(b.group)]);
    pass.at[pass.count - 1].end = b.own.end - b.shift;
    group = b.group;
  }
  return passes;
}

}  // namespace gradus::optim
