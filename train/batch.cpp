#include "train/batch.h"

#include <algorithm>

namespace gradus::train {
namespace {

int64_t count_wanted(const std::vector<int32_t>& targets) {
  return int64_t(targets.size()) - std::count(targets.begin(), targets.end(), kIgnoreTarget);
}

}  // namespace

int64_t Batch::target_count() const { return count_wanted(targets); }
int64_t Batch::pair_count() const { return count_wanted(random); }

}  // namespace gradus::train
