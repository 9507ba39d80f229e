#pragma once
// What a plot on a terminal and one in a file share: curves, and axes with round numbers.
#include <span>
#include <string>
#include <vector>

#include "sched/schedule.h"

namespace gradus::train {

struct Point {
  double x = 0, y = 0;
};

/// Points in order of x. One with a y that is not finite is a gap.
struct Curve {
  std::string name;
  std::vector<Point> points;
};

/// The rates of the updates 0 … steps. Long schedules are sampled, then thinned.
Curve sample(const std::string& name, const sched::Schedule& schedule, int64_t steps);

/// About as many points as 4 · buckets, that draw the same picture: of all that share a bucket of x,
/// the first, the lowest, the highest and the last, in their order. Gaps stay.
std::vector<Point> thin(std::span<const Point> points, size_t buckets);

enum class Scale { linear, logarithmic };

/// From values to the share of the way along an axis.
struct Axis {
  double low = 0, high = 1;
  Scale scale = Scale::linear;
  std::vector<double> ticks;  // round values in [low, high]
  std::vector<std::string> labels;

  double share(double value) const;  // 0 at low, 1 at high
};

/// An axis that holds `low` and `high`, with up to `most` ticks (at least 2).
Axis make_axis(double low, double high, int most, Scale scale = Scale::linear);

/// The axes of all finite points: x from the first to the last; y from 0 where that wastes little.
struct Axes {
  Axis x, y;
};
Axes axes_of(std::span<const Curve> curves, int most_x, int most_y, Scale scale = Scale::linear);

/// "0.25", "6e-4", "1.5k", "20M": as short as four digits allow.
std::string number_text(double value);

}  // namespace gradus::train
