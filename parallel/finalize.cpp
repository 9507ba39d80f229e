#include "parallel/finalize.h"

#include <cstring>

#include "autograd/accumulate.h"
#include "core/random.h"

namespace gradus::parallel {

using optim::Kind;
using optim::part_of;

TrainingGroups training_groups(const ProcessGrid& grid) {
  return {grid.group({"tp"}), grid.group({"dp", "cp"}), grid.group({"tp", "dp", "cp"})};
}

optim::ArenaOptions arena_options(const TrainingGroups& groups, bool zero, int64_t bucket) {
  return {.tensor_rank = groups.tp.rank(),
          .tensor_ranks = groups.tp.size(),
          .slice = zero ? groups.dp.rank() : 0,
          .slices = zero ? groups.dp.size() : 1,
          .bucket = bucket};
}

Finalizer::Finalizer(optim::Optimizer& optimizer, TrainingGroups groups, bool overlap)
    : flat_(optimizer.flat()),
      groups_(std::move(groups)),
      counting_(flat_.layout().options().slices > 1 ? groups_.tp_dp : groups_.tp),
      data_(flat_, groups_.dp, overlap),
      gather_(flat_, groups_.dp) {
  const optim::ArenaOptions& o = flat_.layout().options();
  check(o.tensor_rank == groups_.tp.rank() && o.tensor_ranks == groups_.tp.size(),
        "the optimizer was made for tensor rank ", o.tensor_rank, " of ", o.tensor_ranks,
        ", this is rank ", groups_.tp.rank(), " of ", groups_.tp.describe());
  check(groups_.tp_dp.size() == groups_.tp.size() * groups_.dp.size(), "the ranks of ",
        groups_.tp_dp.describe(), " are not the ", groups_.tp.size(), " x ", groups_.dp.size(),
        " tensor and data ranks");
  // Tensor ranks talk all through a step, so that no link sleeps; and each data group would decide for itself,
  // though NCCL wants all ranks to begin their collectives, of whatever groups, in one order.
  if (groups_.tp.size() > 1) data_.hold_back(0);
}

void Finalizer::run(optim::MixedPrecision& precision, optim::StepOptions options) {
  data_.finish();
  gather_.begin();
  sum_partial_gradients();
  // Copies of a tied table on several pipeline stages would be summed here, before the norm.
  if (counting_.size() > 1)
    options.over_ranks = [this](const Tensor& mine) { return counting_.all_gather(mine); };
  precision.run(options);  // norm → skip or clip → update; the same numbers on all ranks
  gather_.finish();        // of a skipped step, too: the host does not know yet
}

void Finalizer::sum_partial_gradients() {
  for (const optim::Range& range : flat_.layout().partial())
    groups_.tp.all_reduce_into(part_of(flat_.gradients(), range));
}

// ---- agreement

namespace {

/// A number that depends on each bit and its place.
uint64_t hash_of(const Tensor& x) {
  const Tensor host = to_host(x.detach());
  const char* bytes = static_cast<const char*>(host.raw());
  const size_t size = size_t(host.numel()) * size_t(size_of(host.dtype()));
  uint64_t hash = mix(size);
  for (size_t i = 0; i < size; i += sizeof(hash)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof(word), size - i));
    hash = mix(hash ^ word);
  }
  return hash;
}

void check_same(const std::vector<const optim::Slot*>& slots, const Communicator& group) {
  if (group.size() == 1) return;
  std::vector<int64_t> mine;
  for (const optim::Slot* slot : slots) mine.push_back(int64_t(hash_of(slot->parameter)));
  const std::vector<int64_t> all = group.all_gather_values(mine);
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t rank = i / mine.size(), s = i % mine.size();
    check(all[i] == all[s], "ranks ", group.world_ranks()[0], " and ", group.world_ranks()[rank],
          " of ", group.describe(), " have different values of ", slots[s]->name(),
          ", which they should share: were they initialized with different seeds?");
  }
}

}  // namespace

void check_same_parameters(const optim::FlatBuffer& flat, const TrainingGroups& groups) {
  std::vector<const optim::Slot*> all, whole;
  for (const optim::Slot& slot : flat.slots()) {
    all.push_back(&slot);
    if (slot.kind != Kind::cut) whole.push_back(&slot);
  }
  check_same(all, groups.dp);
  if (!whole.empty()) check_same(whole, groups.tp);
}

}  // namespace gradus::parallel
