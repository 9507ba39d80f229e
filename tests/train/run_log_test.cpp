#include "train/run_log.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/tiny_run.h"

namespace gradus::train {
namespace {

TEST(RunLog, EachMetricIsACurveOverTheSteps) {
  const RunLog log = parse_metrics(
      "{\"step\":1,\"loss\":2.5,\"lr\":0.1}\n"
      "{\"step\":2,\"loss\":\"NaN\",\"lr\":0.2,\"grad_norm\":\"Infinity\",\"skipped\":\"head\"}\n"
      "{\"step\":4,\"loss\":2,\"lr\":0.3,\"validation_loss\":1.75}\n"
      "{\"step\":5,\"lo",  // still being written
      "m.jsonl");
  EXPECT_EQ(log.steps, 4);
  const std::vector<Point>& loss = log.curve("loss");
  ASSERT_EQ(loss.size(), 3u);
  EXPECT_EQ(loss[0].y, 2.5);
  EXPECT_TRUE(std::isnan(loss[1].y));
  EXPECT_EQ(loss[2].x, 4);
  EXPECT_EQ(log.curve("grad_norm")[0].y, INFINITY);
  EXPECT_EQ(log.curve("validation_loss")[0].x, 4);
  EXPECT_TRUE(log.curve("loss_scale").empty());
  ASSERT_EQ(log.skipped.size(), 1u);
  EXPECT_EQ(log.skipped[0].second, "head");
}

TEST(RunLog, ALineThatIsNoneIsNamed) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_metrics(text, "m.jsonl"); });
  };
  EXPECT_TRUE(holds(error("{\"step\":1}\nnonsense\n"), {"m.jsonl, line 2", "not JSON"}));
  EXPECT_TRUE(holds(error("{\"loss\":1}\n"), {"m.jsonl, line 1", "no step"}));
  EXPECT_TRUE(holds(error("{\"step\":2,\"a\":1}\n{\"step\":2,\"a\":1}\n"),
                    {"line 2", "step 2 after step 2"}));
  EXPECT_TRUE(holds(error_of([] { read_run_log("nowhere"); }), {"nowhere", "metrics.jsonl"}));
}

TEST(RunLog, ARunIsReadWithItsSettings) {
  TemporaryDirectory d;
  Settings settings = tiny_settings(d, "gpt2");
  TinyRun(settings).run(d / "a run");
  const RunLog log = read_run_log(d / "a run/");
  EXPECT_EQ(log.name, "a run");
  EXPECT_EQ(log.steps, settings.steps);
  EXPECT_EQ(log.curve("loss").size(), size_t(settings.steps));
  bool found = false;
  for (const auto& [name, value] : log.settings) found |= name == "layers" && value == "2";
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace gradus::train
