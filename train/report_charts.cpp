#include "train/report_charts.h"

#include <algorithm>
#include <cmath>

namespace gradus::train {
namespace {

constexpr size_t kBuckets = 300;  // of a curve that is too long to be drawn point by point

enum class Noise { none, noisy };  // noisy: from step to step, so that a mean says more

struct Metric {
  const char *name, *title, *unit;
  Noise noise;
};
constexpr Metric kMetrics[] = {{"grad_norm", "Gradient norm", "before clipping", Noise::noisy},
                               {"lr", "Learning rate", "", Noise::none},
                               {"loss_scale", "Loss scale", "", Noise::none},
                               {"tokens_per_second", "Throughput", "tokens a second", Noise::noisy},
                               {"mfu", "Model FLOP utilisation", "share of the peak", Noise::noisy},
                               {"memory", "Memory", "bytes", Noise::none}};

std::string name_of(std::span<const RunLog> runs, size_t i, const std::string& what) {
  return runs.size() == 1 ? what : runs[i].name + (what.empty() ? "" : " " + what);
}

void add(ReportChart& chart, Line::Kind kind, size_t run, const std::string& name,
         const std::vector<Point>& points) {
  if (!points.empty()) chart.lines.push_back({kind, run, name, thin(points, kBuckets)});
}

// The values of the steps faintly, and their mean over about a hundredth of the run on them.
void add_noisy(ReportChart& chart, size_t run, const std::string& name, const std::string& mean,
               const std::vector<Point>& points) {
  constexpr size_t kEnoughToSmooth = 50;
  const bool smoothed = points.size() >= kEnoughToSmooth;
  add(chart, smoothed ? Line::faint : Line::line, run, name, points);
  if (smoothed) add(chart, Line::line, run, mean, smooth(points, double(points.size()) / 100));
}

void add_loss(ReportChart& chart, std::span<const RunLog> runs, size_t i) {
  add_noisy(chart, i, name_of(runs, i, "training"), name_of(runs, i, "training, mean"),
            runs[i].curve("loss"));
  add(chart, Line::dotted, i, name_of(runs, i, "validation"), runs[i].curve("validation_loss"));
}

void add_metric(ReportChart& chart, std::span<const RunLog> runs, size_t i, const Metric& m) {
  const std::vector<Point>& points = runs[i].curve(m.name);
  if (m.noise == Noise::noisy)
    add_noisy(chart, i, name_of(runs, i, "each step"), name_of(runs, i, "mean"), points);
  else
    add(chart, Line::line, i, name_of(runs, i, ""), points);
}

// Values that differ by large factors are easier to read as factors.
Scale scale_of(const ReportChart& chart) {
  constexpr double kLargeFactor = 50;
  double low = INFINITY, high = 0;
  for (const Line& line : chart.lines)
    for (const Point& p : line.points)
      if (std::isfinite(p.y)) low = std::min(low, p.y), high = std::max(high, p.y);
  return low > 0 && high > kLargeFactor * low ? Scale::logarithmic : Scale::linear;
}

}  // namespace

std::vector<ReportChart> charts_of(std::span<const RunLog> runs) {
  std::vector<ReportChart> charts;
  ReportChart loss{"Loss", "nats a token", Scale::linear, {}};
  for (size_t i = 0; i < runs.size(); ++i) add_loss(loss, runs, i);
  charts.push_back(std::move(loss));
  for (const Metric& m : kMetrics) {
    ReportChart chart{m.title, m.unit, Scale::linear, {}};
    for (size_t i = 0; i < runs.size(); ++i) add_metric(chart, runs, i, m);
    if (m.name != std::string("lr")) chart.scale = scale_of(chart);
    charts.push_back(std::move(chart));
  }
  std::erase_if(charts, [](const ReportChart& chart) { return chart.lines.empty(); });
  return charts;
}

std::vector<Point> smooth(std::span<const Point> points, double half_life) {
  const double keep = std::pow(0.5, 1 / std::max(half_life, 1.0));
  double sum = 0, weight = 0;
  std::vector<Point> out;
  for (const Point& p : points) {
    if (!std::isfinite(p.y)) continue;
    sum = keep * sum + p.y, weight = keep * weight + 1;
    out.push_back({p.x, sum / weight});
  }
  return out;
}

}  // namespace gradus::train
