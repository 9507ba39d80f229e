#include "core/storage.h"

#include <algorithm>
#include <iterator>

#include "core/check.h"

namespace gradus {

Storage::Storage(Device device, size_t bytes)
    : memory_(allocate(device, bytes)), bytes_(bytes), device_(device) {}

// Memory that is still written to must not be given to others. An Error is on its way where joining fails; the
// next wait for the device says it again.
Storage::~Storage() {
  try {
    if (late_) join_late_writes(0, bytes_);
  } catch (const Error&) {
  }
  deallocate(memory_, bytes_);
}

void Storage::add_late_write(size_t begin, size_t end, std::function<void()> join) {
  if (!late_) late_ = std::make_unique<std::vector<LateWrite>>();
  late_->push_back({begin, end, std::move(join)});
}

// They are forgotten first: a join may itself use the memory, or join others.
void Storage::join_late_writes(size_t begin, size_t end) {
  const auto is_apart = [&](const LateWrite& late) {
    return !(late.begin < end && begin < late.end);
  };
  if (std::all_of(late_->begin(), late_->end(), is_apart)) return;
  const auto first = std::stable_partition(late_->begin(), late_->end(), is_apart);
  const std::vector<LateWrite> joined(std::make_move_iterator(first),
                                      std::make_move_iterator(late_->end()));
  late_->erase(first, late_->end());
  if (late_->empty()) late_.reset();
  for (const LateWrite& late : joined) late.join();
}

}  // namespace gradus
