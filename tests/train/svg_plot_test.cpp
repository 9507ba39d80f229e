#include "train/svg_plot.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(SvgPlot, PathsGoThroughThePointsAndBreakAtGaps) {
  const std::vector<Point> points{{0, 0}, {5, 10}, {6, NAN}, {8, 5}, {10, 10}};
  const Axes axes{make_axis(0, 10, 5), make_axis(0, 10, 5)};
  EXPECT_EQ(svg_path(points, axes, 100, 50), "M0.0 50.0L50.0 0.0M80.0 25.0L100.0 0.0");
}

TEST(SvgPlot, EachCurveHasAPathAndAName) {
  const std::vector<Curve> curves{{"a <b> & \"c\"", {{0, 1}, {9, 2}}},
                                  {"second", {{0, 2}, {9, 1}}}};
  const std::string svg = svg_plot(curves, {.title = "two"});
  EXPECT_EQ(count(svg, "class=\"curve c0\""), 2u);  // the curve and its legend
  EXPECT_EQ(count(svg, "class=\"curve c1\""), 2u);
  EXPECT_TRUE(holds(svg, {"a &lt;b&gt; &amp; &quot;c&quot;", "second", "aria-label=\"two\""}))
      << svg;
  EXPECT_EQ(svg.find("a <b>"), std::string::npos);
  for (const char* outside : {"href", "url(", "<script", "@import"})
    EXPECT_EQ(svg.find(outside), std::string::npos) << outside;
  EXPECT_EQ(count(svg, "<svg"), 1u);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(SvgPlot, TooSmallIsAnError) {
  EXPECT_TRUE(holds(error_of([] { svg_plot({}, {.title = "", .width = 50}); }), {"50"}));
}

}  // namespace
}  // namespace gradus::train
