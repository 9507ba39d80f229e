#include "train/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gradus::train {
namespace {

// The smallest of 1, 2, 5, 10, 20, … times a power of ten that is at least `step`.
double round_up(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (double digit : {1.0, 2.0, 5.0})
    if (digit * power >= step * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high, double step) {
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k)
    ticks.push_back(k == 0 ? 0 : k * step);
  return ticks;
}

// 1, 2, 5, 10, … or only every n-th power of ten, so that there are few enough.
std::vector<double> logarithmic_ticks(double low, double high, int most) {
  const int first = int(std::floor(std::log10(low))), last = int(std::ceil(std::log10(high)));
  const auto collect = [&](std::initializer_list<double> digits, int every) {
    std::vector<double> ticks;
    for (int power = first; power <= last; power += every)
      for (double digit : digits)
        if (double t = digit * std::pow(10, power); t >= low * 0.999 && t <= high * 1.001)
          ticks.push_back(t);
    return ticks;
  };
  std::vector<double> ticks = collect({1, 2, 5}, 1);
  for (int every = 1; int(ticks.size()) > most; ++every) ticks = collect({1}, every);
  return ticks;
}

// The place in `points` of the first, lowest, highest and last finite one of a bucket.
struct Bucket {
  size_t first, low, high, last;
};

void append(std::vector<Point>& out, std::span<const Point> points, const Bucket& b) {
  size_t places[] = {b.first, b.low, b.high, b.last};
  std::sort(std::begin(places), std::end(places));
  const auto end = std::unique(std::begin(places), std::end(places));
  for (auto* place = std::begin(places); place != end; ++place) out.push_back(points[*place]);
}

}  // namespace

Curve sample(const std::string& name, const sched::Schedule& schedule, int64_t steps) {
  constexpr int64_t kMost = 1 << 16;
  check(steps > 0, "a plot needs at least 1 step, got ", steps);
  const int64_t count = std::min(steps, kMost);
  std::vector<Point> points;
  for (int64_t i = 0; i <= count; ++i) {
    const auto n = i == count ? steps : int64_t(double(i) * (double(steps) / double(count)));
    points.push_back({double(n), schedule(n)});
  }
  return {name, thin(points, 1024)};
}

std::vector<Point> thin(std::span<const Point> points, size_t buckets) {
  if (points.size() <= 4 * buckets) return {points.begin(), points.end()};
  const double from = points.front().x, width = points.back().x - from;
  const auto bucket_of = [&](const Point& p) {
    return size_t((p.x - from) / width * double(buckets));
  };
  std::vector<Point> out;
  for (size_t i = 0; i < points.size();) {
    if (!std::isfinite(points[i].y)) {
      if (out.empty() || std::isfinite(out.back().y)) out.push_back(points[i]);
      ++i;
      continue;
    }
    Bucket b{i, i, i, i};
    const size_t bucket = bucket_of(points[i]);
    for (; i < points.size() && std::isfinite(points[i].y) && bucket_of(points[i]) == bucket; ++i) {
      if (points[i].y < points[b.low].y) b.low = i;
      if (points[i].y > points[b.high].y) b.high = i;
      b.last = i;
    }
    append(out, points, b);
  }
  return out;
}

double Axis::share(double value) const {
  if (scale == Scale::linear) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

Axis make_axis(double low, double high, int most, Scale scale) {
  check(std::isfinite(low) && std::isfinite(high) && low <= high, "an axis from ", low, " to ",
        high);
  check(scale == Scale::linear || low > 0, "a logarithmic axis begins above 0, not at ", low);
  if (low == high) {  // a level line: in the middle
    const double margin = low == 0 ? 1 : std::abs(low) / 2;
    low -= margin, high += margin;
  }
  Axis axis{low, high, scale, {}, {}};
  most = std::max(most, 2);
  axis.ticks = scale == Scale::linear ? linear_ticks(low, high, round_up((high - low) / most))
                                      : logarithmic_ticks(low, high, most);
  for (double tick : axis.ticks) axis.labels.push_back(number_text(tick));
  return axis;
}

Axes axes_of(std::span<const Curve> curves, int most_x, int most_y, Scale scale) {
  double left = INFINITY, right = -INFINITY, low = INFINITY, high = -INFINITY;
  for (const Curve& curve : curves)
    for (const Point& p : curve.points) {
      left = std::min(left, p.x), right = std::max(right, p.x);
      if (!std::isfinite(p.y) || (scale == Scale::logarithmic && p.y <= 0)) continue;
      low = std::min(low, p.y), high = std::max(high, p.y);
    }
  if (left > right) left = 0, right = 1;
  if (low > high) low = scale == Scale::linear ? 0 : 1, high = low + 1;
  if (scale == Scale::linear && low > 0 && low < 0.2 * high) low = 0;
  return {make_axis(left, right, most_x), make_axis(low, high, most_y, scale)};
}

std::string number_text(double value) {
  constexpr const char* kSuffix[] = {"", "k", "M", "G", "T"};
  int suffix = 0;
  if (std::abs(value) >= 1e4)
    for (; std::abs(value) >= 1e3 && suffix < 4; ++suffix) value /= 1e3;
  char text[32];
  const bool small = value != 0 && std::abs(value) < 1e-3;
  std::snprintf(text, sizeof(text), small ? "%.3e" : "%.4g", value);
  std::string number = text;
  if (const size_t e = number.find('e'); e != std::string::npos) {  // "6.000e-04" → "6e-4"
    const size_t digit = std::min(number.find_first_not_of('0', e + 2), number.size() - 1);
    number.erase(e + 2, digit - e - 2);
    const size_t kept = number.find_last_not_of("0.", e - 1) + 1;
    number.erase(kept, e - kept);
  }
  return number + kSuffix[suffix];
}

}  // namespace gradus::train
