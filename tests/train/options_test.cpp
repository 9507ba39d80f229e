#include "train/options.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

// What the program's command line would give, or throw.
TrainRequest parse(std::vector<std::string> words) {
  CLI::App app("Trains.", "gradus train");
  TrainRequest request;
  add_options(app, request);
  std::reverse(words.begin(), words.end());  // as CLI11 wants it
  app.parse(words);
  return request;
}

TEST(Options, NothingIsChosenThatWasNotGiven) {
  const TrainRequest r = parse({});
  Choices::each_field(
      [](const Setting& s, const auto& choice) { EXPECT_FALSE(choice.has_value()) << s.name; },
      r.choices);
  EXPECT_FALSE(r.resume);
  EXPECT_EQ(r.device, "auto");
}

TEST(Options, EverySettingHasAnOptionOfItsName) {
  const TrainRequest with_text = parse({"--text", "a.txt", "--kv-heads", "2", "--lr", "3e-4",
                                        "--recompute", "--non-finite", "stop"});
  EXPECT_EQ(with_text.choices.text, "a.txt");
  EXPECT_EQ(with_text.choices.kv_heads, 2);
  EXPECT_EQ(with_text.choices.lr, 3e-4);
  EXPECT_EQ(with_text.choices.recompute, true);
  EXPECT_EQ(with_text.choices.non_finite, "stop");
  EXPECT_EQ(parse({"--recompute=false"}).choices.recompute, false);
  Choices::each_field(
      [](const Setting& s, const auto& choice) {
        using T = typename std::decay_t<decltype(choice)>::value_type;
        std::vector<std::string> words{std::string("--") + s.name};
        if constexpr (!std::is_same_v<T, bool>) words.push_back("1");
        EXPECT_NO_THROW(parse(words)) << s.name;
      },
      with_text.choices);
}

TEST(Options, GemmTuningNamesAFile) {
  EXPECT_EQ(parse({}).gemm_tuning, "");
  EXPECT_EQ(parse({"--gemm-tuning", "gemm.txt"}).gemm_tuning, "gemm.txt");
}

TEST(Options, HowAStepIsRunIsNoSetting) {
  const TrainRequest r = parse({"--cuda-graph", "--profile", "trace.json"});
  EXPECT_TRUE(r.cuda_graph);
  EXPECT_EQ(r.profile, "trace.json");
  EXPECT_FALSE(parse({}).cuda_graph);
}

TEST(Options, UnknownOnesAndUnreadableValuesAreErrors) {
  EXPECT_THROW(parse({"--layer", "3"}), CLI::ParseError);
  EXPECT_THROW(parse({"--layers", "three"}), CLI::ParseError);
  EXPECT_THROW(parse({"--layers", "3.5"}), CLI::ParseError);
  EXPECT_THROW(parse({"--lr"}), CLI::ParseError);
  EXPECT_THROW(parse({"stray"}), CLI::ParseError);
}

TEST(Options, AFileGivesWhatTheCommandLineDoesNot) {
  TemporaryDirectory d;
  const std::string file = write_text(d / "run.ini", "layers = 7\nlr = 0.5\nout = here\n");
  const TrainRequest r = parse({"--config", file, "--lr", "0.25"});
  EXPECT_EQ(r.choices.layers, 7);
  EXPECT_EQ(r.choices.lr, 0.25);
  EXPECT_EQ(r.out, "here");
  EXPECT_THROW(parse({"--config", d / "none.ini"}), CLI::ParseError);
  EXPECT_THROW(parse({"--config", write_text(d / "odd.ini", "layer = 7\n")}), CLI::ParseError);
}

}  // namespace
}  // namespace gradus::train
