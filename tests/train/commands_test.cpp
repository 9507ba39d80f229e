// Commands as they are called, in this process: their exit codes and what they print and write.
#include "train/commands.h"

#include <gtest/gtest.h>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

struct Result {
  int code;
  std::string out, err;
};

Result call(int (*command)(int, const char* const*), std::vector<std::string> words) {
  words.insert(words.begin(), "gradus");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = command(int(argv.size()), argv.data());
  std::string out = testing::internal::GetCapturedStdout();
  return {code, std::move(out), testing::internal::GetCapturedStderr()};
}

Result schedule(std::vector<std::string> words) {
  words.insert(words.end(), {"--width", "60", "--steps", "200"});
  return call(schedule_command, std::move(words));
}

// E4: each value that the help offers.
TEST(Commands, ScheduleDrawsEveryStyle) {
  for (const char* style : {"constant", "linear", "cosine", "inverse_sqrt", "wsd"}) {
    const Result r = schedule({"--lr-style", style});
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(holds(r.out, {std::string("learning rate, ") + style, "100"})) << r.out;
  }
  for (const char* tail : {"linear", "cosine", "exponential", "minus_sqrt"})
    EXPECT_EQ(schedule({"--lr-style", "wsd", "--tail", "50", "--tail-style", tail}).code, 0);
  for (const char* style : {"linear", "cosine"}) {
    const Result r = schedule({"--weight-decay-style", style, "--start-weight-decay", "0.01"});
    EXPECT_TRUE(holds(r.out, {std::string("weight decay, ") + style})) << r.err;
  }
}

TEST(Commands, ScheduleDrawsWhatIsSaidInWords) {
  TemporaryDirectory d;
  const Result r = schedule({"step(0.1, 50, 0.5)", "linear(0, 1, 100)", "--svg", d / "a.svg"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(holds(r.out, {"step(0.1, 50, 0.5)\n", "linear(0, 1, 100)\n", "written: "}));
  EXPECT_TRUE(holds(read_text(d / "a.svg"), {"<svg", "linear(0, 1, 100)"}));
}

TEST(Commands, ScheduleRefusesWhatItWouldNotUse) {
  EXPECT_EQ(schedule({"linear(0, 1, 100)", "--lr", "3"}).code, 1);
  EXPECT_TRUE(holds(schedule({"linear(0, 1, 100)", "--lr", "3"}).err, {"--lr", "in words"}));
  EXPECT_TRUE(holds(schedule({"--lr-style", "sine"}).err, {"sine", "inverse_sqrt"}));
  EXPECT_TRUE(holds(call(schedule_command, {"--width", "5"}).err, {"columns"}));
  EXPECT_EQ(schedule({"--no-such-option"}).code, 2);
}

TEST(Commands, ConvertThereAndBack) {
  TemporaryDirectory d;
  const std::string from = "tests/fixtures/hf/gpt2";
  EXPECT_EQ(call(convert_command, {"--from-hf", from, "--to", d / "run"}).code, 0);
  const Result back = call(convert_command, {"--from", d / "run", "--to-hf", d / "back"});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_TRUE(std::filesystem::exists(d / "back/config.json"));
  const Result wrong = call(convert_command, {"--from-hf", from, "--to-hf", d / "b"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(holds(wrong.err, {"--from-hf DIR --to RUN"}));
}

TEST(Commands, ReportWritesAPage) {
  TemporaryDirectory d;
  for (const char* run : {"a", "b"}) {
    std::filesystem::create_directory(d / run);
    write_text(d / run + "/metrics.jsonl", "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2}\n");
  }
  EXPECT_EQ(call(report_command, {d / "a"}).code, 0);
  EXPECT_TRUE(holds(read_text(d / "a/report.html"), {"<title>Run a</title>", "no checkpoint"}));
  EXPECT_EQ(call(report_command, {d / "a", d / "b", "--out", d / "both.html"}).code, 0);
  EXPECT_TRUE(holds(read_text(d / "both.html"), {"<title>Runs a, b</title>"}));
  EXPECT_EQ(call(report_command, {d / "none"}).code, 1);
}

}  // namespace
}  // namespace gradus::train
