#pragma once
// A box of ranks with named axes; the first axis varies fastest.
//
//   axes tp 2, dp 3          tp ─▶          groups({"tp"}):        {0,1} {2,3} {4,5}
//                       dp   0  1           groups({"dp"}):        {0,2,4} {1,3,5}
//                       │    2  3           groups({"tp","dp"}):   {0 … 5}
//                       ▼    4  5
//
// rank = offset + Σ_i c_i Π_{j<i} size_j. Groups are found by listing ranks and their coordinates, never by
// arithmetic on ranks: "rank ± tp" is right in one order of axes only.
#include <string>
#include <vector>

#include "core/check.h"

namespace gradus::parallel {

struct Axis {
  std::string name;
  int size = 1;
};

using Names = std::vector<std::string>;
using RankLists = std::vector<std::vector<int>>;

/// Error: not equally many names and sizes.
std::vector<Axis> axes_of(const Names& names, const std::vector<int>& sizes);

/// The numbers alone: no rank talks. See parallel/process_grid.h for the communicators.
class GridShape {
 public:
  /// `name` is for messages. Error: no axes, a size ≤ 0, a negative offset, an axis twice, more ranks than
  /// `world` − offset.
  GridShape(std::vector<Axis> axes, int world, int offset = 0, std::string name = "grid");

  int size() const { return size_; }
  int offset() const { return offset_; }
  const std::string& name() const { return name_; }
  const std::vector<Axis>& axes() const { return axes_; }
  bool has(const std::string& axis) const;
  int axis_size(const std::string& axis) const { return axes_[index(axis)].size; }
  bool contains(int rank) const { return rank >= offset_ && rank < offset_ + size_; }
  int coordinate(int rank, const std::string& axis) const;

  /// `names` in the order of the axes, each once. Error: one is no axis, or comes twice.
  Names in_order(const Names& names) const;
  /// The ranks that agree on all axes but `along`, whose order does not matter: each group ascending, the
  /// groups by their first rank. They are a partition of the ranks.
  RankLists groups(const Names& along) const;
  /// Of each group along one axis, the ranks at these places: {0, P − 1} of a pipeline are its ends.
  RankLists places(const std::string& along, const std::vector<int>& places) const;

 private:
  size_t index(const std::string& axis) const;
  std::vector<int> coordinates(int rank) const;

  std::vector<Axis> axes_;
  int offset_ = 0, size_ = 1;
  std::string name_;
};

/// Error unless each two of these cover the same ranks or have none in common, and together they cover
/// 0 … world − 1.
void check_tiling(const std::vector<GridShape>& grids, int world);

}  // namespace gradus::parallel
