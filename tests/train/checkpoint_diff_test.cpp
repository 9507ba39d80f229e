#include "train/checkpoint_diff.h"

#include <gtest/gtest.h>

#include "tests/train/tiny_run.h"

namespace gradus::train {
namespace {

// One step in f64, unclipped and without memory: the first moments are its gradients.
Settings gradient_settings(const TemporaryDirectory& d, const std::string& family) {
  Settings s = tiny_settings(d, family);
  s.dtype = "f64", s.beta1 = s.beta2 = s.clip = 0, s.dropout = 0;
  s.steps = s.decay_steps = 1, s.warmup = 0;
  return s;
}

CheckpointReader trained(Settings s, const std::string& directory) {
  TinyRun run(s);
  return CheckpointReader(run.run(directory).checkpoint);
}

std::string text_of(const ConsistencyReport& report) {
  std::ostringstream out;
  print(out, report);
  return out.str();
}

TEST(CheckpointDiff, GradientsDoNotDependOnMicroBatches) {
  for (const char* family : {"gpt2", "llama"}) {
    TemporaryDirectory d;
    Settings s = gradient_settings(d, family);
    EXPECT_TRUE(gradient_caveats(s).empty());
    s.accumulate = 1;
    const CheckpointReader one = trained(s, d / "one");
    s.accumulate = 4;
    const auto report = diff(one, trained(s, d / "four"));
    EXPECT_TRUE(report.agrees()) << text_of(report);
    EXPECT_GT(report.worst_rel(), 0) << "sums in another order";
    EXPECT_EQ(report.tensors.size(), one.meta()["depths"].size());
    ASSERT_EQ(report.numbers.size(), 3u);
    EXPECT_EQ(report.numbers[2].left, 64);  // targets: 4 windows of 16
    s.epsilon = 1e-3;                       // of the update, not of the gradient
    EXPECT_TRUE(diff(one, trained(s, d / "other"), {.kind = "v"}).agrees());
    EXPECT_FALSE(diff(one, trained(s, d / "other2"), {.kind = "parameters"}).agrees());
  }
}

TEST(CheckpointDiff, AnotherGradientDiffersAndATensorOfOneSideIsAFault) {
  TemporaryDirectory d;
  Settings s = gradient_settings(d, "gpt2");
  const CheckpointReader one = trained(s, d / "one");
  s.text = write_text(d / "other.txt", made_up_text(6001).substr(1));
  EXPECT_FALSE(diff(one, trained(s, d / "text")).agrees());
  s = gradient_settings(d, "gpt2");
  s.tied = false;
  const auto report = diff(one, trained(s, d / "untied"));
  EXPECT_TRUE(holds(text_of(report), {"FAULT: head is on the right only"})) << text_of(report);
  s.steps = 2;
  const CheckpointReader later = trained(s, d / "later");
  const std::string error = error_of([&] { diff(one, later); });
  EXPECT_TRUE(holds(error, {"step 1", "step 2"})) << error;
}

TEST(CheckpointDiff, SaysWhyMomentsAreNotGradients) {
  TemporaryDirectory d;
  Settings s = gradient_settings(d, "gpt2");
  s.beta1 = 0.9, s.clip = 1, s.optimizer = "adam", s.weight_decay = 0.1;
  std::string all;
  for (const std::string& caveat : gradient_caveats(s)) all += caveat + "\n";
  EXPECT_TRUE(holds(all, {"--beta1 0 --beta2 0", "--clip 0", "--optimizer adamw"})) << all;
  s.optimizer = "muon";
  EXPECT_TRUE(holds(gradient_caveats(s)[0], {"muon"}));
}

TEST(CheckpointDiff, DepthsAreThoseOfTheModel) {
  TemporaryDirectory d;
  for (const char* family : {"gpt2", "llama"}) {
    Settings s = tiny_settings(d, family);
    s.tied = false;
    const auto depths = TinyRun(s).state.model.depths();
    EXPECT_EQ(depths.at("tokens.weight"), 0);
    EXPECT_EQ(depths.at("blocks.0.norm1.weight"), 1);
    EXPECT_EQ(depths.at("blocks.1.attention.out.weight"), 2);
    EXPECT_EQ(depths.at("norm.weight"), 2);
    EXPECT_EQ(depths.at("head"), 2);
  }
}

}  // namespace
}  // namespace gradus::train
