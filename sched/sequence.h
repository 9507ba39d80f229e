#pragma once
// Schedules one after the other. Schedule i begins at milestone i and counts from its own 0:
//
//   η(n) = ηᵢ(n − mᵢ)   for mᵢ ≤ n < mᵢ₊₁,   m₀ = 0        η₀ ╱‾‾‾╲ η₂
//                                                             m₁  m₂╲___
#include <algorithm>
#include <vector>

#include "sched/schedule.h"

namespace gradus::sched {

/// `parts` with parts[i] from milestones[i − 1] on (parts[0] from 0). Error unless there is one
/// milestone less than parts, and 0 < milestones[0] < milestones[1] < …
inline Schedule sequence(std::vector<Schedule> parts, std::vector<int64_t> milestones) {
  check(parts.size() == milestones.size() + 1, "sequence: ", parts.size(), " schedules need ",
        int64_t(parts.size()) - 1, " milestones between them, got ", milestones.size());
  int64_t last = 0;
  for (int64_t m : milestones) {
    check(m > last, "sequence: milestones must be > 0 and increase, got ", m, " after ", last);
    last = m;
  }
  return [parts = std::move(parts), milestones = std::move(milestones)](int64_t n) {
    auto next = std::upper_bound(milestones.begin(), milestones.end(), n);
    int64_t begin = next == milestones.begin() ? 0 : next[-1];
    return parts[next - milestones.begin()](n - begin);
  };
}

}  // namespace gradus::sched
