#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/allocator.h"
#include "tests/devices.h"
#include "tests/train/tiny_run.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

TEST(Trainer, LearnsAndEndsWithTheLossOverAllHeldOutTokens) {
  TemporaryDirectory d;
  Settings s = tiny_settings(d, "gpt2");
  s.steps = s.decay_steps = 40, s.dropout = 0;
  TinyRun run(s);
  const Outcome outcome = run.run(d / "run");
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.checkpoint, d / "run/step_00000040");
  ASSERT_TRUE(outcome.validation.has_value());
  EXPECT_EQ(outcome.validation->count, 599);  // 600 tokens held out, each but the first a target
  const auto metrics = metrics_of(d / "run");
  ASSERT_EQ(metrics.size(), 40u);
  EXPECT_NEAR(metrics[0]["loss"].get<double>(), std::log(256), 0.1);  // nothing is known at first
  EXPECT_LT(outcome.validation->mean(), 3.2);
  EXPECT_EQ(metrics[39]["validation_loss_all"], outcome.validation->mean());
}

// C8, R8: a run that is stopped and resumed, also twice and in the middle of an epoch, is the
// uninterrupted run: all tensors and all metrics, with dropout on.
TEST(Trainer, C8_R8_O16_StoppedAndResumedIsUninterrupted) {
  for (Device device : test_devices())
    for (const char* family : {"gpt2", "llama"})
      for (const char* dtype : {"f32", "bf16"}) {
        SCOPED_TRACE(testing::Message() << device << ' ' << family << ' ' << dtype);
        TemporaryDirectory d;
        Settings s = tiny_settings(d, family);
        s.dtype = dtype;
        const Outcome whole = TinyRun(s, device).run(d / "whole");
        for (int64_t stop : {3, 7})
          EXPECT_FALSE(TinyRun(s, device).run(d / "parts", {.stop_at = stop}).finished);
        const Outcome parts = TinyRun(s, device).run(d / "parts");
        EXPECT_TRUE(parts.finished);
        EXPECT_EQ(hashes_of(parts.checkpoint), hashes_of(whole.checkpoint));
        EXPECT_EQ(metrics_of(d / "parts"), metrics_of(d / "whole"));
        EXPECT_EQ(parts.validation->sum, whole.validation->sum);
      }
}

TEST(Trainer, C7_MicroBatchesDoNotChangeWhatIsLearned) {
  TemporaryDirectory d;
  Settings s = tiny_settings(d, "llama");
  s.dropout = 0, s.steps = 6;
  const auto metrics = metrics_by_micro_batches(s, d);
  // f32 sums of 64 losses in another order: relative error below 64 · 2⁻²⁴ = 4e-6 in the first step;
  // Adam divides gradients by their size, so the error grows with each step.
  for (size_t i = 0; i < 6; ++i)
    for (const auto& other : {metrics[1], metrics[2]}) {
      const double a = metrics[0][i]["loss"], b = other[i]["loss"];
      EXPECT_NEAR(a, b, (i == 0 ? 4e-6 : 1e-3) * a);
      EXPECT_EQ(metrics[0][i]["tokens"], other[i]["tokens"]);
    }
}

TEST(Trainer, R6_RecomputationDoesNotChangeABit) {
  for (const char* family : {"gpt2", "llama"}) {
    TemporaryDirectory d;
    Settings s = tiny_settings(d, family);
    s.steps = 4;
    const Outcome kept = TinyRun(s).run(d / "kept");
    s.recompute = true;
    const Outcome again = TinyRun(s).run(d / "again");
    EXPECT_EQ(hashes_of(again.checkpoint), hashes_of(kept.checkpoint)) << family;
    EXPECT_EQ(metrics_of(d / "again"), metrics_of(d / "kept")) << family;
  }
}

TEST(Trainer, TheNumberOfThreadsDoesNotChangeABit) {
  TemporaryDirectory d;
  Settings s = tiny_settings(d, "llama");
  s.width = 64, s.ffn = 128, s.length = 64, s.batch = 8, s.steps = 2;  // enough to share
  const auto run_with = [&](int threads) {
    const std::string directory = d / std::to_string(threads);
    TinyRun run(s);
    use_threads(threads);
    return hashes_of(run.run(directory).checkpoint);
  };
  const auto alone = run_with(1);
  for (int threads : {2, 3}) EXPECT_EQ(run_with(threads), alone) << threads;
}

TEST(Trainer, E4_EveryModelTrains) {
  TemporaryDirectory d;
  for (const std::string& name : GptConfig::preset_names()) {
    Settings s = preset(name);
    const Settings small = tiny_settings(d, s.family);
    s.text = small.text, s.vocabulary = 256, s.dtype = "f32", s.min_lr = s.lr, s.warmup = 0;
    s.layers = 1, s.width = 16, s.heads = 2, s.kv_heads = 1, s.ffn = 24;
    s.length = 16, s.batch = 4, s.steps = s.decay_steps = 2;
    validate(s);
    EXPECT_TRUE(TinyRun(s).run(d / name).finished) << name;
  }
}

TEST(Trainer, ARunThatIsStoppedBeforeItsFirstStepGoesOnFromThere) {
  TemporaryDirectory d;
  const Settings s = tiny_settings(d, "gpt2");
  const Outcome whole = TinyRun(s).run(d / "whole");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(TinyRun(s).run(d / "parts", {.stop = [] { return true; }}).checkpoint,
              d / "parts/step_00000000");
  EXPECT_EQ(hashes_of(TinyRun(s).run(d / "parts").checkpoint), hashes_of(whole.checkpoint));
}

TEST(Trainer, M3_MemoryIsFlat) {
  TemporaryDirectory d;
  for (Device device : test_devices()) {
    TinyRun run(tiny_settings(d, "llama"), device);
    const auto memory_after = [&](int64_t step) {
      while (run.state.step < step - 1) train_step(run.state, *run.data.training, run.settings);
      reset_peak(device);
      train_step(run.state, *run.data.training, run.settings);
      const MemoryStats stats = memory_stats(device);
      return std::pair(stats.live, stats.peak);
    };
    const auto early = memory_after(3);
    EXPECT_GT(early.second, early.first);
    EXPECT_EQ(memory_after(53), early) << device;
  }
}

TEST(Trainer, M5_EvaluationLeavesMemoryAndModeAsTheyWere) {
  TemporaryDirectory d;
  TinyRun run(tiny_settings(d, "gpt2"));
  train_step(run.state, *run.data.training, run.settings);
  const int64_t live = memory_stats(kCpu).live;
  const EvaluationPlan plan{.batch = 4, .accumulate = 2, .tokens = 200};
  const auto first = evaluate(run.state.model, *run.data.validation, plan, Extent::all);
  const auto again = evaluate(run.state.model, *run.data.validation, plan, Extent::part);
  EXPECT_EQ(memory_stats(kCpu).live, live);
  EXPECT_TRUE(run.state.model.module().training);
  EXPECT_EQ(first->part.sum, again->part.sum);  // no dropout, the same part
  EXPECT_EQ(first->part.count, 256);            // 200 tokens are 4 batches of 64
  EXPECT_EQ(first->all->count, 599);
  EXPECT_FALSE(again->all.has_value());
  EXPECT_FALSE(evaluate(run.state.model, *run.data.validation, plan, Extent::all, [] {
                 return true;
               }).has_value());
}

// In f16 the scale is part of what is resumed: an overflow in between, hysteresis used up.
TEST(Trainer, C8_F16RunsResumeWithTheirLossScale) {
  TemporaryDirectory d;
  for (const char* optimizer : {"adamw", "muon", "sgd", "adam"}) {
    SCOPED_TRACE(optimizer);
    Settings s = tiny_settings(d, "llama");
    s.dtype = "f16", s.optimizer = optimizer, s.loss_scale = "dynamic";
    if (optimizer == std::string("muon")) s.momentum = 0.9;
    validate(s);
    const std::string whole = d / (std::string("whole") + optimizer);
    const std::string parts = d / (std::string("parts") + optimizer);
    const auto with_scale = [&](const std::string& directory, int64_t stop) {
      TinyRun run(s);
      run.state.precision.restore({0x1p40, 0, 2});
      return run.run(directory, {.stop_at = stop});
    };
    const Outcome straight = with_scale(whole, 0);
    EXPECT_FALSE(with_scale(parts, 4).finished);
    const Outcome resumed = TinyRun(s).run(parts);
    EXPECT_EQ(hashes_of(resumed.checkpoint), hashes_of(straight.checkpoint));
    EXPECT_EQ(metrics_of(parts), metrics_of(whole));
    const auto metrics = metrics_of(whole);
    EXPECT_TRUE(metrics[0].contains("skipped"));
    EXPECT_LT(metrics[11]["loss_scale"].get<double>(), 0x1p40);
  }
}

// Poisons one weight for one step, by way of the parameter itself.
TEST(Trainer, O1_O17_T5_ANonFiniteGradientSkipsTheStepAndIsNamed) {
  TemporaryDirectory d;
  TinyRun run(tiny_settings(d, "gpt2"));
  for (int i = 0; i < 2; ++i) train_step(run.state, *run.data.training, run.settings);
  const nn::NamedParameter poisoned = run.state.model.module().named_parameters().back();
  const double value = poisoned.parameter.at(0);
  poisoned.parameter.detach().set(0, NAN);
  const int64_t scheduled = run.state.schedule.samples(), samples = run.state.samples;
  const std::vector<double> others = run.state.model.module().parameters()[0].to_vector();
  const StepReport skipped = train_step(run.state, *run.data.training, run.settings);
  EXPECT_FALSE(skipped.applied);
  EXPECT_FALSE(skipped.non_finite.empty());
  EXPECT_EQ(run.state.optimizer->steps(), 2);
  EXPECT_EQ(run.state.schedule.samples(), scheduled);
  EXPECT_EQ(run.state.samples, samples + 4);  // the batch is consumed
  EXPECT_EQ(run.state.model.module().parameters()[0].to_vector(), others);
  poisoned.parameter.detach().set(0, value);
  const StepReport next = train_step(run.state, *run.data.training, run.settings);
  EXPECT_TRUE(next.applied);
  EXPECT_EQ(next.lr, skipped.lr);
}

TEST(Trainer, O1_SkippedStepsAreRecordedAndCanStopTheRun) {
  TemporaryDirectory d;
  Settings s = tiny_settings(d, "gpt2");
  s.steps = 3;
  TinyRun run(s);
  run.state.model.module().parameters()[0].detach().set(0, NAN);
  run.run(d / "skip");
  const auto metrics = metrics_of(d / "skip");
  ASSERT_EQ(metrics.size(), 3u);
  EXPECT_EQ(metrics[2]["loss"], "NaN");
  EXPECT_NE(metrics[2]["skipped"].get<std::string>(), "");
  EXPECT_TRUE(holds(run.shown.str(), {"step 3 is skipped", "is not finite"})) << run.shown.str();

  s.non_finite = "stop";
  TinyRun stops(s);
  stops.state.model.module().parameters()[0].detach().set(0, NAN);
  const std::string error = error_of([&] { stops.run(d / "stop"); });
  EXPECT_TRUE(holds(error, {"step 1", "gradient of", "--non-finite skip"})) << error;
}

TEST(Trainer, KeepsTheNewestAndTheBestCheckpoints) {
  TemporaryDirectory d;
  Settings s = tiny_settings(d, "gpt2");
  s.eval_every = s.save_every = 1, s.keep = 2, s.steps = 6;
  TinyRun run(s);
  run.run(d / "run");
  const CheckpointList list = list_checkpoints(d / "run");
  const auto has = [&](int64_t step) {
    return std::any_of(list.complete.begin(), list.complete.end(),
                       [&](const SavedStep& saved) { return saved.step == step; });
  };
  EXPECT_TRUE(has(5) && has(6));
  EXPECT_LE(list.complete.size(), 3u);
  double lowest = INFINITY;
  int64_t best = 0;
  for (const auto& line : metrics_of(d / "run"))
    if (const double loss = line["validation_loss"]; loss < lowest)
      lowest = loss, best = line["step"];
  EXPECT_TRUE(has(best));
  EXPECT_EQ(best_step(list), best);
}

// A disk that takes nothing while the step is `full_at`.
Disk full_disk_at(const RunState& state, int64_t full_at) {
  return {.hook = [&state, full_at](const char* operation, const std::string& path) {
    check(state.step != full_at || operation != std::string("write"), "cannot write ", path,
          ": No space left on device");
  }};
}

TEST(Trainer, C9_AFullDiskLeavesTrainingAndThePreviousCheckpoint) {
  TemporaryDirectory d;
  const Settings s = tiny_settings(d, "llama");  // saves at 5, 10 and 12
  const Outcome plain = TinyRun(s).run(d / "plain");

  TinyRun run(s);
  const Outcome outcome = run.run(d / "full", {.disk = full_disk_at(run.state, 10)});
  EXPECT_TRUE(holds(run.shown.str(),
                    {"step 10 is not saved", "No space left", "step_00000005", "training goes on"}))
      << run.shown.str();
  EXPECT_EQ(hashes_of(outcome.checkpoint), hashes_of(plain.checkpoint));

  TinyRun ends_full(s);
  const std::string error =
      error_of([&] { ends_full.run(d / "end", {.disk = full_disk_at(ends_full.state, 12)}); });
  EXPECT_TRUE(holds(error, {"step 12 is not saved", "No space left", "step_00000010"})) << error;
  EXPECT_EQ(list_checkpoints(d / "end").complete.back().step, 10);
  const Outcome again = TinyRun(s).run(d / "end");  // there is room again
  EXPECT_EQ(hashes_of(again.checkpoint), hashes_of(plain.checkpoint));
  EXPECT_EQ(metrics_of(d / "end"), metrics_of(d / "plain"));
}

TEST(Trainer, AFinishedRunThatIsResumedOnlyEvaluates) {
  TemporaryDirectory d;
  const Settings s = tiny_settings(d, "gpt2");
  const Outcome first = TinyRun(s).run(d / "run");
  const Outcome again = TinyRun(s).run(d / "run");
  EXPECT_TRUE(again.finished);
  EXPECT_EQ(again.checkpoint, first.checkpoint);
  EXPECT_EQ(again.validation->sum, first.validation->sum);
  EXPECT_EQ(metrics_of(d / "run").size(), 12u);
}

}  // namespace
}  // namespace gradus::train
