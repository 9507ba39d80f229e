#pragma once
// Where the elements of a part lie in the whole, when both are counted row by row.
//
//   a whole of 3 rows of 6, and two of its columns: runs of 2, one every 6, the first at 2
//
//     0  1 [ 2  3]  4  5           local   0 1 2 3  4  5
//     6  7 [ 8  9] 10 11           global  2 3 8 9 14 15
//    12 13 [14 15] 16 17
//
// Random numbers are keyed by the global index, so that what a rank or a micro-batch draws for its part
// is what anybody draws for the whole.
#include <cstdint>

#include "core/check.h"
#include "core/device.h"

namespace gradus {

/// Local index i ↦ first + (i / run) · stride + i mod run.
struct IndexMap {
  uint64_t first = 0;  // the global index of element 0
  int64_t run = 0;     // how many elements lie side by side; 0: all of them
  int64_t stride = 0;  // from the beginning of a run to that of the next

  GRADUS_HD uint64_t operator()(uint64_t i) const {
    if (run == 0) return first + i;
    return first + i / uint64_t(run) * uint64_t(stride) + i % uint64_t(run);
  }
  /// Whether n neighbours that begin at a multiple of n are that globally, too.
  GRADUS_HD bool keeps(int64_t n) const {
    return first % uint64_t(n) == 0 && run % n == 0 && stride % n == 0;
  }
  /// How many elements from local index i on are neighbours globally, at most n.
  int64_t side_by_side(uint64_t i, int64_t n) const {
    if (run == 0) return n;
    const int64_t left = run - int64_t(i % uint64_t(run));
    return left < n ? left : n;
  }
  bool operator==(const IndexMap&) const = default;
};

/// Error, which begins with `what`, if two elements of the part would be one of the whole.
inline void check_map(const char* what, const IndexMap& map) {
  check(map.run >= 0 && (map.run == 0 || map.stride >= map.run), what, ": runs of ", map.run,
        " elements every ", map.stride, " overlap; needed is 0 < run ≤ stride, or run = 0");
}

}  // namespace gradus
