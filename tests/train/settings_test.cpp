#include "train/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "models/config.h"
#include "tests/train/helpers.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

Settings valid() {
  Choices c;
  c.text = "some.txt";
  return resolve(c, false);
}

// The text of the error that a change to valid settings gives.
template <class F>
std::string error_after(F&& change) {
  Settings s = valid();
  validate(s);
  change(s);
  return error_of([&] { validate(s); });
}

TEST(Settings, EveryPresetIsValidAndIsFoundByItsName) {
  for (const std::string& name : GptConfig::preset_names()) {
    Choices c;
    c.model = name, c.text = "some.txt";
    const Settings s = resolve(c, false);
    EXPECT_EQ(s.model, name);
    EXPECT_NO_THROW(validate(s)) << name;
  }
  for (bool on_gpu : {false, true}) EXPECT_NO_THROW(preset(default_preset(on_gpu)));
  const std::string error = error_of([] { preset("gpt-huge"); });
  EXPECT_TRUE(holds(error, {"gpt-huge", "gpt-tiny", "gpt2-124m"})) << error;
}

TEST(Settings, AChoiceReplacesThePresetAndWhatFollowsFromIt) {
  Choices c;
  c.model = "gpt-tiny", c.text = "some.txt";
  c.width = 96, c.heads = 3, c.steps = 200, c.lr = 0.01;
  const Settings s = resolve(c, false);
  EXPECT_EQ(s.width, 96);
  EXPECT_EQ(s.ffn, 384);     // 4 · width
  EXPECT_EQ(s.kv_heads, 3);  // as many as heads
  EXPECT_EQ(s.warmup, 10);   // 5 % of 200
  EXPECT_EQ(s.decay_steps, 200);
  EXPECT_EQ(s.eval_every, 25);
  EXPECT_EQ(s.save_every, 25);
  EXPECT_DOUBLE_EQ(s.min_lr, 0.001);
  EXPECT_EQ(s.vocabulary, 256);
  EXPECT_EQ(s.layers, preset("gpt-tiny").layers);
  c.model = "llama-tiny";
  EXPECT_EQ(resolve(c, false).ffn, 256);  // 8/3 · 96
  c.kv_heads = 1, c.ffn = 100, c.warmup = 0, c.min_lr = 0.0;
  const Settings t = resolve(c, false);
  EXPECT_EQ(std::vector<int64_t>({t.kv_heads, t.ffn, t.warmup}), std::vector<int64_t>({1, 100, 0}));
  EXPECT_EQ(t.min_lr, 0);
}

TEST(Settings, TheTypeFollowsTheDeviceUnlessItIsChosen) {
  Choices c;
  EXPECT_EQ(resolve(c, false).dtype, "f32");
  EXPECT_EQ(resolve(c, true).dtype, "bf16");
  c.dtype = "f32";
  EXPECT_EQ(resolve(c, true).dtype, "f32");
}

TEST(Settings, EachNumberOutOfRangeIsNamedWithItsValue) {
  using S = Settings;
  EXPECT_TRUE(holds(error_after([](S& s) { s.layers = -3; }), {"--layers", "-3"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.batch = 0; }), {"--batch", "got 0"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.steps = 0; }), {"--steps", "got 0"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.seed = -1; }), {"--seed", "-1"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.width = 130; }), {"--width 130", "--heads 4"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.kv_heads = 3; }), {"--heads 4", "--kv-heads 3"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.width = 12; }), {"RoPE", "12 / --heads 4 = 3"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.accumulate = 3; }), {"--batch", "--accumulate 3"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.warmup = s.decay_steps; }), {"--warmup"}));
  for (double bad : {-0.1, 1.0, double(NAN)})
    EXPECT_TRUE(holds(error_after([=](S& s) { s.dropout = bad; }), {"--dropout", "[0, 1)"})) << bad;
  for (double bad : {0.0, -1.0, double(NAN), double(INFINITY)})
    EXPECT_TRUE(holds(error_after([=](S& s) { s.lr = bad; }), {"--lr"})) << bad;
  EXPECT_TRUE(holds(error_after([](S& s) { s.min_lr = 2 * s.lr; }), {"--min-lr", "above --lr"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.dtype = "f8"; }), {"--dtype", "f32, bf16", "f8"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.loss_scale = "8"; }), {"--loss-scale", "f16"}));
  for (const char* bad : {"fast", "0", "-2", "8x", "inf", "nan"})
    EXPECT_TRUE(holds(error_after([=](S& s) { s.dtype = "f16", s.loss_scale = bad; }),
                      {"--loss-scale", bad}));
  EXPECT_TRUE(
      holds(error_after([](S& s) { s.optimizer = "lion"; }), {"--optimizer", "muon", "lion"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.momentum = 0.5; }), {"--momentum 0.5", "adamw"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.family = "t5"; }), {"gpt2, llama, bert", "t5"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.text = ""; }), {"--text", "--data"}));
  EXPECT_TRUE(holds(error_after([](S& s) { s.data = "a.bin"; }), {"--text", "--data", "not both"}));
}

TEST(Settings, NamesDifferAndJsonKeepsEveryField) {
  Settings s = valid();
  std::set<std::string> names;
  int64_t number = 7;
  Settings::each_field(
      [&](const Setting& setting, auto& value) {
        EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>)
          value = setting.name;
        else if constexpr (std::is_same_v<T, double>)
          value = 1.0 / double(++number);
        else if constexpr (std::is_same_v<T, bool>)
          value = !value;
        else
          value = (int64_t(1) << 40) + ++number;
      },
      s);
  const Settings read = settings_from(nlohmann::json::parse(to_json(s).dump()));
  Settings::each_field(
      [](const Setting& setting, const auto& a, const auto& b) { EXPECT_EQ(a, b) << setting.name; },
      s, read);
}

// Model and weights come from elsewhere, how it is trained is chosen anew.
TEST(Settings, ARunThatBeginsWithOtherWeightsHasTheirModel) {
  Settings other = preset("gpt2-124m");
  other.model = "gpt2", other.vocabulary = 101, other.length = 24, other.norm_epsilon = 1e-6;
  Choices c;
  c.data = "some.bin", c.lr = 1e-4, c.dropout = 0.25;
  const Settings s = resolve_with_model(other, c, false);
  EXPECT_EQ(s.model, "gpt2");
  EXPECT_EQ(s.vocabulary, 101);
  EXPECT_EQ(s.length, 24);
  EXPECT_EQ(s.norm_epsilon, 1e-6);
  EXPECT_EQ(s.lr, 1e-4);
  EXPECT_EQ(s.dropout, 0.25);
  c.layers = 3, c.length = 12;
  const std::string error = error_of([&] { resolve_with_model(other, c, false); });
  EXPECT_TRUE(holds(error, {"--layers 3", "12", "--length 12", "24"})) << error;
  c.layers.reset();
  other.family = "llama";  // rotary positions: any length
  EXPECT_EQ(resolve_with_model(other, c, false).length, 12);
  c.model = "gpt-tiny";
  EXPECT_TRUE(holds(error_of([&] { resolve_with_model(other, c, false); }), {"--model"}));
}

TEST(Settings, AnEncoderThatIsBegunWithIsTrainedAsOne) {
  Settings other = preset("bert-tiny");
  other.text = "x.txt", other.vocabulary = 300;
  Choices c;
  c.text = "x.txt";
  for (const char* model : {"bert-tiny", "bert"}) {  // "bert": from Hugging Face
    other.model = model;
    const Settings s = resolve_with_model(other, c, false);
    EXPECT_EQ(s.model, model);
    EXPECT_EQ(s.family, "bert");
    EXPECT_EQ(s.mask, 0.15);
    EXPECT_EQ(s.beta2, 0.98);
  }
  c.length = other.length + 1;  // learned positions end
  EXPECT_TRUE(holds(error_of([&] { resolve_with_model(other, c, false); }), {"--length"}));
}

TEST(Settings, AResumedRunNamesBothValuesOfWhatMustNotDiffer) {
  const Settings stored = valid();
  Choices c;
  c.width = stored.width + 32, c.lr = 0.5, c.layers = stored.layers;
  const std::string error = error_of([&] { resume_with(stored, c); });
  EXPECT_TRUE(holds(error, {"--width 160", "has 128", "--lr 0.5", "has 0.003"})) << error;
  EXPECT_FALSE(holds(error, {"--layers"}));  // the same value
}

TEST(Settings, AResumedRunKeepsItsSettingsAndTakesThoseThatMayDiffer) {
  const Settings stored = valid();
  Choices c;
  c.steps = stored.steps + 100, c.accumulate = 4, c.keep = 5;
  const Settings s = resume_with(stored, c);
  EXPECT_EQ(s.steps, stored.steps + 100);
  EXPECT_EQ(s.decay_steps, stored.decay_steps);  // the curve of the rate stays
  EXPECT_EQ(s.accumulate, 4);
  EXPECT_EQ(s.keep, 5);
  EXPECT_EQ(s.lr, stored.lr);
}

}  // namespace
}  // namespace gradus::train
