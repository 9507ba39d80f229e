#pragma once
// The charts of a report: which metrics are drawn, over each other, for all runs.
#include <span>
#include <string>
#include <vector>

#include "train/run_log.h"

namespace gradus::train {

struct Line {
  enum Kind { line, faint, dotted } kind = line;
  size_t run = 0;    // whose colour it has
  std::string name;  // in the read-out
  std::vector<Point> points;
};

struct ReportChart {
  std::string title, unit;
  Scale scale = Scale::linear;
  std::vector<Line> lines;
};

/// Those for which at least one run has values: loss, gradient norm, learning rate, loss scale, tokens
/// a second, utilisation, memory.
std::vector<ReportChart> charts_of(std::span<const RunLog> runs);

/// A mean over the last points, weighed so that it forgets half of what it knew in `half_life` points.
/// What is not finite is passed over.
std::vector<Point> smooth(std::span<const Point> points, double half_life);

}  // namespace gradus::train
