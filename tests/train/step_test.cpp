#include "train/step.h"

#include <gtest/gtest.h>

#include "tests/devices.h"
#include "tests/train/tiny_run.h"

namespace gradus::train {
namespace {

Settings without_dropout(const TemporaryDirectory& d, const std::string& family,
                         const char* dtype) {
  Settings s = tiny_settings(d, family);
  s.dropout = 0, s.dtype = dtype;
  return s;
}

struct Taken {
  std::vector<StepReport> reports;
  std::vector<std::vector<float>> parameters;
};

// `ahead` steps are begun before the oldest is finished.
Taken take_steps(const Settings& s, Device device, int steps, int ahead, bool graph) {
  TinyRun run(s, device);
  StepRunner runner(run.state, *run.data.training, run.settings, graph);
  Taken taken;
  for (int i = 0; i < steps; ++i) {
    runner.begin();
    if (runner.running() > ahead) taken.reports.push_back(runner.finish());
  }
  while (runner.running() > 0) taken.reports.push_back(runner.finish());
  for (const nn::Parameter& p : run.state.model.module().parameters()) {
    const Tensor host = to(cast(p.detach(), DType::f32), kCpu);
    taken.parameters.emplace_back(host.data<float>(), host.data<float>() + host.numel());
  }
  return taken;
}

void expect_same(const Taken& a, const Taken& b) {
  ASSERT_EQ(a.reports.size(), b.reports.size());
  for (size_t i = 0; i < a.reports.size(); ++i) {
    EXPECT_EQ(a.reports[i].step, int64_t(i) + 1);
    EXPECT_EQ(a.reports[i].step, b.reports[i].step);
    EXPECT_EQ(a.reports[i].samples, b.reports[i].samples);
    EXPECT_EQ(a.reports[i].loss, b.reports[i].loss) << "step " << i + 1;
    EXPECT_EQ(a.reports[i].grad_norm, b.reports[i].grad_norm) << "step " << i + 1;
    EXPECT_EQ(a.reports[i].lr, b.reports[i].lr) << "step " << i + 1;
  }
  EXPECT_EQ(a.parameters, b.parameters);
}

// The rate rises, falls and ends within these steps; the schedule is asked for steps whose
// predecessors are not finished.
TEST(StepRunner, StepsThatOverlapAreThoseThatDoNot) {
  TemporaryDirectory d;
  for (Device device : test_devices()) {
    const Settings s = without_dropout(d, "llama", "f32");
    const Taken one_by_one = take_steps(s, device, 14, 0, false);
    EXPECT_NE(one_by_one.reports[0].lr, one_by_one.reports[5].lr);
    for (int ahead : {1, kMostRunning - 1})
      expect_same(one_by_one, take_steps(s, device, 14, ahead, false));
  }
}

// What is dropped is that of the whole batch. The losses are means of 64 numbers near 3 in f32, summed in
// another order; after an update, of parameters that differ by as much. Other masks change them by 1e-2.
TEST(StepRunner, R5_DropoutDoesNotDependOnTheMicroBatches) {
  TemporaryDirectory d;
  for (Device device : test_devices())
    for (const char* family : {"gpt2", "llama"}) {
      Settings s = tiny_settings(d, family);
      s.dropout = 0.2, s.accumulate = 1;
      const Taken whole = take_steps(s, device, 3, 0, false);
      for (int64_t parts : {2, 4}) {
        s.accumulate = parts;
        const Taken cut = take_steps(s, device, 3, 0, false);
        for (size_t i = 0; i < 3; ++i)
          EXPECT_NEAR(cut.reports[i].loss, whole.reports[i].loss, 1e-5) << parts << ", step " << i;
      }
    }
}

TEST(StepRunner, AGraphIsTheEagerStepBitForBit) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  TemporaryDirectory d;
  for (const char* family : {"gpt2", "llama"})
    for (const char* dtype : {"f32", "bf16"}) {
      SCOPED_TRACE(testing::Message() << family << ' ' << dtype);
      const Settings s = without_dropout(d, family, dtype);
      const Taken eager = take_steps(s, kCuda, 20, 0, false);
      expect_same(eager, take_steps(s, kCuda, 20, 0, true));
      expect_same(eager, take_steps(s, kCuda, 20, 1, true));
    }
}

// What else happens between two replays (an evaluation) has memory of its own.
TEST(StepRunner, AGraphAndEvaluationsDoNotDisturbEachOther) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  TemporaryDirectory d;
  const Settings s = without_dropout(d, "gpt2", "f32");
  const Outcome eager = TinyRun(s, kCuda).run(d / "eager");
  const Outcome graph = TinyRun(s, kCuda).run(d / "graph", {.cuda_graph = true});
  EXPECT_EQ(hashes_of(graph.checkpoint), hashes_of(eager.checkpoint));
  EXPECT_EQ(metrics_of(d / "graph"), metrics_of(d / "eager"));
}

TEST(StepRunner, AGraphNeedsAGpuAndNoDropout) {
  TemporaryDirectory d;
  const auto error = [&](const Settings& s) {
    TinyRun run(s);
    return error_of([&] { StepRunner(run.state, *run.data.training, run.settings, true); });
  };
  EXPECT_TRUE(holds(error(tiny_settings(d, "gpt2")), {"--cuda-graph", "--dropout is 0.1"}));
  EXPECT_TRUE(holds(error(without_dropout(d, "gpt2", "f32")), {"--cuda-graph", "GPU", "cpu"}));
}

TEST(StepRunner, StepsBeginAndEndInOrder) {
  TemporaryDirectory d;
  TinyRun run(tiny_settings(d, "gpt2"));
  StepRunner runner(run.state, *run.data.training, run.settings);
  EXPECT_TRUE(holds(error_of([&] { runner.finish(); }), {"no step is running"}));
  for (int i = 0; i < kMostRunning; ++i) runner.begin();
  EXPECT_TRUE(holds(error_of([&] { runner.begin(); }), {"4 others are not finished"}));
  EXPECT_EQ(run.state.step, kMostRunning);
  EXPECT_EQ(run.state.updates, 0);  // none is finished
  EXPECT_EQ(runner.finish().samples, run.settings.batch);
  EXPECT_EQ(run.state.updates, 1);
}

}  // namespace
}  // namespace gradus::train
