#include "parallel/grid.h"

#include <algorithm>
#include <map>

namespace gradus::parallel {
namespace {

std::string span(const GridShape& g) {
  return g.name() + " (ranks " + std::to_string(g.offset()) + " to " +
         std::to_string(g.offset() + g.size() - 1) + ")";
}

std::string list(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& a : axes) text += (text.empty() ? "" : ", ") + a.name;
  return text;
}

}  // namespace

std::vector<Axis> axes_of(const Names& names, const std::vector<int>& sizes) {
  check(names.size() == sizes.size(), "axes of a grid: ", names.size(), " names, but ",
        sizes.size(), " sizes");
  std::vector<Axis> axes;
  for (size_t i = 0; i < names.size(); ++i) axes.push_back({names[i], sizes[i]});
  return axes;
}

GridShape::GridShape(std::vector<Axis> axes, int world, int offset, std::string name)
    : axes_(std::move(axes)), offset_(offset), name_(std::move(name)) {
  check(!axes_.empty(), "a grid needs an axis: ", name_, " has none");
  check(offset >= 0, "the offset of ", name_, " is ", offset, ", which is negative");
  int64_t size = 1;
  for (const Axis& a : axes_) {
    check(a.size > 0, "axis ", a.name, " of ", name_, " has size ", a.size,
          ", which is not positive");
    size *= a.size;
    check(size <= world - offset, "the axes of ", name_, " (", list(axes_), ") ask for ", size,
          " ranks or more, but there are ", world, " from rank ", offset, " on: ", world - offset);
  }
  size_ = int(size);
  in_order([&] {
    Names names;
    for (const Axis& a : axes_) names.push_back(a.name);
    return names;
  }());
}

bool GridShape::has(const std::string& axis) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const Axis& a) { return a.name == axis; });
}

size_t GridShape::index(const std::string& axis) const {
  for (size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == axis) return i;
  fail("there is no axis ", axis, " in ", name_, ", which has ", list(axes_));
}

std::vector<int> GridShape::coordinates(int rank) const {
  check(contains(rank), "rank ", rank, " is outside of ", span(*this));
  std::vector<int> c;
  int rest = rank - offset_;
  for (const Axis& a : axes_) {
    c.push_back(rest % a.size);
    rest /= a.size;
  }
  return c;
}

int GridShape::coordinate(int rank, const std::string& axis) const {
  return coordinates(rank)[index(axis)];
}

Names GridShape::in_order(const Names& names) const {
  std::vector<int> count(axes_.size());
  for (const std::string& n : names)
    check(++count[index(n)] == 1, "axis ", n, " is named twice in ", name_);
  Names ordered;
  for (size_t i = 0; i < axes_.size(); ++i)
    if (count[i]) ordered.push_back(axes_[i].name);
  return ordered;
}

RankLists GridShape::groups(const Names& along) const {
  std::vector<bool> inside(axes_.size());
  for (const std::string& n : in_order(along)) inside[index(n)] = true;
  std::map<std::vector<int>, size_t> group_at;  // by the coordinates on all other axes
  RankLists groups;
  for (int rank = offset_; rank < offset_ + size_; ++rank) {
    std::vector<int> others = coordinates(rank);
    for (size_t i = 0; i < axes_.size(); ++i)
      if (inside[i]) others[i] = 0;
    const auto [it, is_new] = group_at.try_emplace(others, groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].push_back(rank);
  }
  return groups;
}

RankLists GridShape::places(const std::string& along, const std::vector<int>& places) const {
  const int size = axis_size(along);
  for (int p : places)
    check(p >= 0 && p < size, "place ", p, " on axis ", along, " of ", name_, ", whose size is ",
          size);
  RankLists picked;
  for (const std::vector<int>& line : groups({along})) {
    picked.emplace_back();
    for (int p = 0; p < size; ++p)
      if (std::find(places.begin(), places.end(), p) != places.end())
        picked.back().push_back(line[size_t(p)]);
  }
  return picked;
}

void check_tiling(const std::vector<GridShape>& grids, int world) {
  std::vector<bool> covered(static_cast<size_t>(world));
  for (const GridShape& a : grids) {
    check(a.offset() + a.size() <= world, "a grid reaches beyond the world: ", span(a), ", of ",
          world, " ranks there are");
    for (const GridShape& b : grids) {
      const bool equal = a.offset() == b.offset() && a.size() == b.size();
      const bool apart = a.offset() + a.size() <= b.offset() || b.offset() + b.size() <= a.offset();
      check(equal || apart, "two grids overlap in part: ", span(a), " and ", span(b),
            "; they must cover the same ranks or have none in common");
    }
    std::fill_n(covered.begin() + a.offset(), a.size(), true);
  }
  const auto hole = std::find(covered.begin(), covered.end(), false);
  check(hole == covered.end(), "rank ", hole - covered.begin(), " of ", world, " is in no grid");
}

}  // namespace gradus::parallel
