#include "parallel/process_grid.h"

#include <algorithm>

namespace gradus::parallel {
namespace {

std::string joined(const Names& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : "+") + n;
  return text;
}

}  // namespace

ProcessGrid::ProcessGrid(Communicator world, std::vector<Axis> axes, int offset)
    : world_(std::move(world)) {
  views_.emplace(kBase, View{GridShape(std::move(axes), world_.size(), offset, kBase), {}});
}

void ProcessGrid::view(const std::string& name, std::vector<Axis> axes, const Names& shared) {
  check(!views_.contains(name), "there is a view ", name, " of the grid already");
  const GridShape& base = shape();
  GridShape other(std::move(axes), world_.size(), base.offset(), name);
  check(other.size() == base.size(), "view ", name, " has ", other.size(),
        " ranks, but the grid has ", base.size());
  for (const std::string& axis : shared)
    check(base.has(axis) && other.has(axis), "axis ", axis, " is to be shared, but is not in ",
          base.has(axis) ? name : kBase);
  // Equal alone is equal together: the groups along two axes are what hangs together through either.
  for (const std::string& axis : shared)
    check(base.groups({axis}) == other.groups({axis}), "the groups along ", axis,
          " are to be shared, but they are other ranks in view ", name, " than in the grid");
  views_.emplace(name, View{std::move(other), shared});
}

const ProcessGrid::View& ProcessGrid::find(const std::string& view) const {
  const auto it = views_.find(view);
  check(it != views_.end(), "there is no view ", view, " of the grid");
  return it->second;
}

const GridShape& ProcessGrid::shape(const std::string& view) const { return find(view).shape; }

// Axes that are all shared make groups of the grid itself.
ProcessGrid::Key ProcessGrid::key(const Names& along, const std::string& view) const {
  const View& v = find(view);
  const Names ordered = v.shape.in_order(along);
  const bool shared = std::all_of(ordered.begin(), ordered.end(), [&](const std::string& n) {
    return std::find(v.shared.begin(), v.shared.end(), n) != v.shared.end();
  });
  return shared ? Key{kBase, shape().in_order(ordered)} : Key{view, ordered};
}

/// One group of each list, or what was made of the same lists; a rank in none has a group of one.
ProcessGrid::Made ProcessGrid::make(const RankLists& lists, const std::string& name) const {
  for (const auto& [key, made] : groups_)
    if (made.ranks == lists) return made;
  int color = -1, place = 0;
  for (size_t i = 0; i < lists.size(); ++i)
    for (size_t k = 0; k < lists[i].size(); ++k)
      if (lists[i][k] == world_.rank()) {
        color = int(i);
        place = int(k);
      }
  return {lists, world_.split(color, place, name), color >= 0};
}

void ProcessGrid::create(const Names& along, const std::string& view) {
  const Key k = key(along, view);
  if (groups_.contains(k)) return;
  const std::string prefix = k.first == kBase ? "" : k.first + ":";
  groups_.emplace(k, make(shape(k.first).groups(k.second), prefix + joined(k.second)));
}

void ProcessGrid::create_from(const std::string& name, const RankLists& lists) {
  const Key k{name, {}};
  check(!groups_.contains(k) && !views_.contains(name), "there are groups called ", name,
        " already");
  std::vector<int> all;
  for (const std::vector<int>& list : lists) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  check(twice == all.end(), "groups ", name, ": rank ", twice == all.end() ? -1 : *twice,
        " is in two of them");
  check(all.empty() || (all.front() >= 0 && all.back() < world_.size()), "groups ", name,
        " name a rank outside of the world of ", world_.size());
  groups_.emplace(k, make(lists, name));
}

const ProcessGrid::Made& ProcessGrid::existing(const Key& k, const std::string& text) const {
  const auto it = groups_.find(k);
  check(it != groups_.end(), "the group ", text,
        " was asked for, but not created; all ranks create it first, with create");
  return it->second;
}

Communicator ProcessGrid::group(const Names& along, const std::string& view) const {
  const Key k = key(along, view);
  const Made& made = existing(k, joined(k.second) + " of " + k.first);
  check(made.mine, "rank ", world_.rank(), " is outside of the grid, so in no group of it");
  return made.group;
}

Communicator ProcessGrid::group_from(const std::string& name) const {
  const Made& made = existing({name, {}}, name);
  check(made.mine, "rank ", world_.rank(), " is in none of the groups ", name);
  return made.group;
}

bool ProcessGrid::is_in(const std::string& name) const { return existing({name, {}}, name).mine; }

ProcessGrid model_grid(const Communicator& world, Layout l) {
  const int model = l.tp * l.cp * l.pp;
  check(l.tp > 0 && l.cp > 0 && l.pp > 0, "tp, cp and pp are positive, got ", l.tp, ", ", l.cp,
        ", ", l.pp);
  check(world.size() % model == 0, "tp · cp · pp = ", l.tp, " · ", l.cp, " · ", l.pp,
        " does not divide the ", world.size(), " ranks");
  ProcessGrid grid(world, {{"tp", l.tp}, {"cp", l.cp}, {"dp", world.size() / model}, {"pp", l.pp}});
  const Names needed[] = {{"tp"},
                          {"cp"},
                          {"dp"},
                          {"pp"},
                          {"cp", "dp"},
                          {"tp", "cp"},
                          {"tp", "pp"},
                          {"tp", "dp"},
                          {"tp", "cp", "dp"},
                          {"tp", "cp", "dp", "pp"}};
  for (const Names& along : needed) grid.create(along);
  return grid;
}

}  // namespace gradus::parallel
