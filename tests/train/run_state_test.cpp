#include "train/run_state.h"

#include <gtest/gtest.h>

#include "tests/train/tiny_run.h"

namespace gradus::train {
namespace {

TEST(RunState, C8_EveryTensorAndNumberComesBack) {
  TemporaryDirectory d;
  Settings s = tiny_settings(d, "llama");
  s.dtype = "bf16";  // with masters
  TinyRun a(s), b(s);
  for (int i = 0; i < 3; ++i) train_step(a.state, *a.data.training, s);
  const std::string path = a.state.save(d / "run", s, {{"note", 7}}, 1.5);
  const CheckpointReader reader(path);
  EXPECT_EQ(reader.meta()["note"], 7);
  EXPECT_EQ(reader.index().score, 1.5);
  b.state.load(reader);
  EXPECT_EQ(b.state.step, 3);
  EXPECT_EQ(b.state.samples, a.state.samples);
  EXPECT_EQ(b.state.dropout.state(), a.state.dropout.state());
  EXPECT_EQ(b.state.optimizer->steps(), 3);
  EXPECT_EQ(b.state.schedule.samples(), a.state.schedule.samples());
  EXPECT_EQ(hashes_of(b.state.save(d / "again", s, {}, {})), hashes_of(path));
  const auto& tensors = reader.index().tensors;
  EXPECT_EQ(tensors.size(), 4 * a.state.model.module().named_parameters().size());
  const std::string name = a.state.model.module().named_parameters()[1].name;
  for (const char* kind : {"", "optimizer.m.", "optimizer.v.", "optimizer.master."})
    EXPECT_EQ(tensors.count(kind + name), 1u) << kind << name;
  EXPECT_EQ(tensors.at(name).dtype, DType::bf16);
  EXPECT_EQ(tensors.at("optimizer.master." + name).dtype, DType::f32);
}

TEST(RunState, C5_AModelOfOtherSizesIsAnErrorThatNamesBothAndChangesNothing) {
  TemporaryDirectory d;
  Settings s = tiny_settings(d, "gpt2");
  TinyRun a(s);
  const CheckpointReader reader(a.state.save(d / "run", s, {}, {}));
  s.width = 32;
  TinyRun wider(s);
  const auto before = wider.state.model.module().parameters()[0].to_vector();
  const std::string error = error_of([&] { wider.state.load(reader); });
  EXPECT_TRUE(holds(error, {"tokens.weight", "16", "32"})) << error;
  EXPECT_EQ(wider.state.model.module().parameters()[0].to_vector(), before);
  EXPECT_EQ(wider.state.step, 0);
}

TEST(RunState, ACheckpointOfSomethingElseIsAnError) {
  TemporaryDirectory d;
  CheckpointWriter writer(d.path(), 1);
  const CheckpointReader reader(writer.publish({{"whose", "another program's"}}));
  const std::string error = error_of([&] { settings_of(reader); });
  EXPECT_TRUE(holds(error, {"step_00000001", "gradus train", "settings"})) << error;
}

TEST(RunState, TheSeedDecidesTheFirstValues) {
  TemporaryDirectory d;
  Settings s = tiny_settings(d, "gpt2");
  TinyRun a(s), b(s);
  s.seed = 2;
  TinyRun c(s);
  const auto values = [](TinyRun& r) { return r.state.model.module().parameters()[0].to_vector(); };
  EXPECT_EQ(values(a), values(b));
  EXPECT_NE(values(a), values(c));
}

}  // namespace
}  // namespace gradus::train
