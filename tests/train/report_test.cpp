#include "train/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/train/helpers.h"
#include "train/report_charts.h"

namespace gradus::train {
namespace {

RunLog run(const std::string& name, double lr) {
  RunLog log;
  log.name = name, log.steps = 200;
  for (int step = 1; step <= 200; ++step) {
    log.curves["loss"].push_back({double(step), 5.0 / step + 1});
    log.curves["grad_norm"].push_back({double(step), step == 7 ? NAN : 100.0 / step});
    log.curves["lr"].push_back({double(step), lr});
  }
  log.curves["validation_loss"] = {{100, 2}, {200, 1.5}};
  log.skipped = {{7, "blocks.0.<x>"}};
  log.settings = {{"lr", std::to_string(lr)}, {"layers", "2"}};
  return log;
}

// The JSON that the script reads.
nlohmann::json data_of(const std::string& html) {
  const std::string begin = "<script id=\"data\" type=\"application/json\">";
  const size_t at = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(at, html.find("</script>", at) - at));
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Weights halve every half-life: of 4 and 0, one apart at a half-life of 1, the mean is 4/3.
TEST(ReportCharts, SmoothIsAMeanThatForgets) {
  const std::vector<Point> points{{1, 4}, {2, 0}, {3, NAN}, {4, 1}};
  const std::vector<Point> mean = smooth(points, 1);
  ASSERT_EQ(mean.size(), 3u);
  EXPECT_EQ(mean[0].y, 4);
  EXPECT_NEAR(mean[1].y, 4.0 / 3, 1e-15);
  EXPECT_EQ(mean[2].x, 4);
  EXPECT_NEAR(mean[2].y, (1 + 0.5 * 0 + 0.25 * 4) / 1.75, 1e-15);
}

TEST(ReportCharts, OnlyWhatWasRecordedIsDrawn) {
  const std::vector<RunLog> runs{run("a", 0.1)};
  const std::vector<ReportChart> charts = charts_of(runs);
  ASSERT_EQ(charts.size(), 3u);
  EXPECT_EQ(charts[0].title, "Loss");
  ASSERT_EQ(charts[0].lines.size(), 3u);  // each step, their mean, validation
  EXPECT_EQ(charts[0].lines[2].kind, Line::dotted);
  EXPECT_EQ(charts[1].title, "Gradient norm");
  EXPECT_EQ(charts[1].scale, Scale::logarithmic);  // from 100 to 0.5
  EXPECT_EQ(charts[2].title, "Learning rate");
}

TEST(Report, ThePageNeedsNothingFromElsewhere) {
  const std::vector<RunLog> runs{run("a", 0.1)};
  const std::string html = report_html(runs);
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url("})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  for (const char* tag : {"figure", "svg", "table", "details", "script", "ul", "main", "style"})
    EXPECT_EQ(count(html, std::string("<") + tag + ">") + count(html, std::string("<") + tag + " "),
              count(html, std::string("</") + tag + ">"))
        << tag;
}

TEST(Report, TheScriptHasTheNumbersOfTheRun) {
  const std::vector<RunLog> runs{run("a", 0.1), run("b </script>", 0.2)};
  const std::string html = report_html(runs);
  const nlohmann::json data = data_of(html);
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(data[0]["lines"].size(), 6u);
  EXPECT_EQ(data[2]["lines"][0], nlohmann::json::parse(data[2]["lines"][0].dump()));
  EXPECT_EQ(data[2]["lines"][1][0], "b </script>");
  EXPECT_EQ(data[2]["lines"][1][1], 1);
  EXPECT_EQ(data[2]["lines"][1][2][4], 5);    // step
  EXPECT_EQ(data[2]["lines"][1][3][4], 0.2);  // lr
  EXPECT_TRUE(data[1]["lines"][0][3][6].is_null());
}

TEST(Report, RunsAreNamedAndSettingsThatDifferAreMarked) {
  const std::vector<RunLog> runs{run("a & co", 0.1), run("b", 0.2)};
  const std::string html = report_html(runs);
  EXPECT_TRUE(holds(html, {"a &amp; co", "1.5 at step 200", "blocks.0.&lt;x&gt;", "not finite"}));
  EXPECT_EQ(count(html, "<tr class=\"differs\"><th scope=\"row\">lr</th>"), 1u);
  EXPECT_EQ(count(html, "class=\"differs\""), 1u);
  EXPECT_THROW(report_html({}), Error);
}

}  // namespace
}  // namespace gradus::train
