#include "train/plot.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sched/sched.h"

namespace gradus::train {
namespace {

TEST(Plot, AShortScheduleIsSampledAtEveryUpdate) {
  const Curve c = sample("a line", sched::linear(0, 8, 8), 8);
  ASSERT_EQ(c.points.size(), 9u);
  for (size_t n = 0; n < 9; ++n) {
    EXPECT_EQ(c.points[n].x, double(n));
    EXPECT_EQ(c.points[n].y, double(n));
  }
  EXPECT_THROW(sample("nothing", sched::constant(1), 0), Error);
}

TEST(Plot, ALongScheduleKeepsItsEndsAndItsPeak) {
  const auto peak_at_777 = [](int64_t n) { return n == 777 ? 2.0 : 1.0; };
  const Curve c = sample("a peak", peak_at_777, 60000);
  EXPECT_LE(c.points.size(), 4u * 1024);
  EXPECT_EQ(c.points.front().x, 0);
  EXPECT_EQ(c.points.back().x, 60000);
  double highest = 0;
  for (const Point& p : c.points) highest = std::max(highest, p.y);
  EXPECT_EQ(highest, 2);
}

// Ten buckets of 100 points: first, lowest, highest and last of each are kept, in their order.
TEST(Plot, ThinKeepsTheExtremesOfEachBucketAndTheGaps) {
  std::vector<Point> points;
  for (int i = 0; i <= 1000; ++i) points.push_back({double(i), double(i % 100)});
  points[450].y = NAN, points[451].y = INFINITY, points[530].y = -7;
  const std::vector<Point> thinned = thin(points, 10);
  EXPECT_LE(thinned.size(), 4u * 11 + 1);
  int gaps = 0, lowest = 0;
  for (size_t i = 0; i < thinned.size(); ++i) {
    gaps += !std::isfinite(thinned[i].y);
    lowest += thinned[i].y == -7;
    EXPECT_TRUE(i == 0 || thinned[i - 1].x < thinned[i].x) << i;
  }
  EXPECT_EQ(gaps, 1);  // two beside each other are one gap
  EXPECT_EQ(lowest, 1);
}

TEST(Plot, AxesHaveFewRoundTicksInsideTheirRange) {
  for (const auto& [low, high] : {std::pair{0.0, 1.0}, {3e-5, 6e-4}, {-7.0, 1234.5}, {0.0, 6e5}}) {
    const Axis axis = make_axis(low, high, 5);
    EXPECT_GE(axis.ticks.size(), 2u);
    EXPECT_LE(axis.ticks.size(), 6u);
    EXPECT_EQ(axis.labels.size(), axis.ticks.size());
    for (double tick : axis.ticks) {
      EXPECT_GE(axis.share(tick), -1e-9);
      EXPECT_LE(axis.share(tick), 1 + 1e-9);
    }
  }
  EXPECT_EQ(make_axis(0, 1, 5).labels,
            (std::vector<std::string>{"0", "0.2", "0.4", "0.6", "0.8", "1"}));
  EXPECT_EQ(make_axis(2, 2, 4).share(2), 0.5);
  EXPECT_THROW(make_axis(0, INFINITY, 4), Error);
}

TEST(Plot, LogarithmicAxesCountFactors) {
  const Axis axis = make_axis(0.1, 1000, 5, Scale::logarithmic);
  EXPECT_EQ(axis.labels, (std::vector<std::string>{"0.1", "1", "10", "100", "1000"}));
  EXPECT_NEAR(axis.share(10), 0.5, 1e-15);
  EXPECT_THROW(make_axis(0, 1, 5, Scale::logarithmic), Error);
}

TEST(Plot, AxesOfCurvesPassOverWhatIsNotFinite) {
  const std::vector<Curve> curves{{"a", {{1, 5}, {2, NAN}, {3, INFINITY}}},
                                  {"b", {{0, 6}, {4, 8}}}};
  const Axes axes = axes_of(curves, 5, 5);
  EXPECT_EQ(axes.x.low, 0);
  EXPECT_EQ(axes.x.high, 4);
  EXPECT_EQ(axes.y.low, 5);  // 5 of 8: from 0 on, more than half of the plot would be empty
  EXPECT_EQ(axes.y.high, 8);
  EXPECT_NO_THROW(axes_of({}, 5, 5));
}

TEST(Plot, NumbersAreShort) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(6e-4), "6e-4");
  EXPECT_EQ(number_text(0.00025), "2.5e-4");
  EXPECT_EQ(number_text(1e-12), "1e-12");
  EXPECT_EQ(number_text(0.25), "0.25");
  EXPECT_EQ(number_text(-1500), "-1500");
  EXPECT_EQ(number_text(20000), "20k");
  EXPECT_EQ(number_text(1.5e6), "1.5M");
}

}  // namespace
}  // namespace gradus::train
