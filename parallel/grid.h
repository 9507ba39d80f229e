#pragma once
// A box of ranks with named axes; the first axis varies fastest.
//
//   axes tp 2, dp 3          tp ─▶          group("tp"):        {0,1} {2,3} {4,5}
//                       dp   0  1           group("dp"):        {0,2,4} {1,3,5}
//                       │    2  3           group("tp","dp"):   {0 … 5}
//                       ▼    4  5
//
// rank = offset + Σ_i c_i Π_{j<i} size_j. Groups are found by listing ranks and their coordinates, never by
// arithmetic on ranks: "rank ± tp" is right in one order of axes only.
#include <map>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace gradus::parallel {

struct Axis {
  std::string name;
  int size = 1;
};

/// The numbers alone: no rank talks. See ProcessGrid for the communicators.
class GridShape {
 public:
  /// Error: no axes, a size ≤ 0, a negative offset, an axis twice, more ranks than `world` − offset.
  GridShape(std::vector<Axis> axes, int world, int offset = 0);

  int size() const;
  int offset() const { return offset_; }
  const std::vector<Axis>& axes() const { return axes_; }
  int axis_size(const std::string& axis) const;
  bool contains(int rank) const;
  int coordinate(int rank, const std::string& axis) const;
  /// All groups along `axes` (in any order), each ascending, ordered by their first rank.
  std::vector<std::vector<int>> groups(const std::vector<std::string>& axes) const;

 private:
  std::vector<Axis> axes_;
  int offset_ = 0;
};

}  // namespace gradus::parallel
