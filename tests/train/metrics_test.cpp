#include "train/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

// Steps 1 … 5 with loss 10 − step.
std::string write_five(const std::string& path) {
  MetricsFile file(path);
  for (int64_t step = 1; step <= 5; ++step) file.write(step, {{"loss", 10.0 - double(step)}});
  return path;
}

TEST(Metrics, OneLineAStepInTheOrderGiven) {
  TemporaryDirectory d;
  MetricsFile file(d / "metrics.jsonl");
  file.write(1, {{"loss", 2.5}, {"lr", 0.0006}, {"tokens", int64_t(4096)}});
  file.write(2, {{"note", "a \"quoted\"\nline"}});
  EXPECT_EQ(read_text(d / "metrics.jsonl"),
            "{\"step\":1,\"loss\":2.5,\"lr\":0.0006,\"tokens\":4096}\n"
            "{\"step\":2,\"note\":\"a \\\"quoted\\\"\\nline\"}\n");
}

TEST(Metrics, T5_LinesWithNanAndInfinityAreValidJson) {
  TemporaryDirectory d;
  MetricsFile file(d / "metrics.jsonl");
  file.write(1, {{"a", double(NAN)}, {"b", double(INFINITY)}, {"c", -double(INFINITY)}});
  const auto line = nlohmann::json::parse(read_text(d / "metrics.jsonl"));
  EXPECT_EQ(line,
            (nlohmann::json{{"step", 1}, {"a", "NaN"}, {"b", "Infinity"}, {"c", "-Infinity"}}));
}

TEST(Metrics, NumbersReadBackExactly) {
  TemporaryDirectory d;
  MetricsFile file(d / "metrics.jsonl");
  const double third = 1.0 / 3, tiny = 5e-324, large = 1.7e308;
  file.write(1, {{"a", third}, {"b", tiny}, {"c", large}, {"d", int64_t(1) << 62}});
  const auto line = nlohmann::json::parse(read_text(d / "metrics.jsonl"));
  EXPECT_EQ(line["a"].get<double>(), third);
  EXPECT_EQ(line["b"].get<double>(), tiny);
  EXPECT_EQ(line["c"].get<double>(), large);
  EXPECT_EQ(line["d"].get<int64_t>(), int64_t(1) << 62);
}

TEST(Metrics, T5_AStepHasOneLine) {
  TemporaryDirectory d;
  MetricsFile file(d / "metrics.jsonl");
  file.write(3, {});
  EXPECT_TRUE(holds(error_of([&] { file.write(3, {}); }), {"step 3", "metrics.jsonl"}));
  EXPECT_THROW(file.write(2, {}), Error);
  EXPECT_EQ(read_text(d / "metrics.jsonl"), "{\"step\":3}\n");
}

TEST(Metrics, ResumingCutsTheLinesPastTheStep) {
  TemporaryDirectory d;
  const std::string path = write_five(d / "metrics.jsonl");
  MetricsFile file(path, 3);
  EXPECT_TRUE(holds(error_of([&] { file.write(3, {}); }), {"step 3"}));
  file.write(4, {{"loss", 0.5}});
  EXPECT_EQ(read_text(path),
            "{\"step\":1,\"loss\":9.0}\n{\"step\":2,\"loss\":8.0}\n{\"step\":3,\"loss\":7.0}\n"
            "{\"step\":4,\"loss\":0.5}\n");
}

TEST(Metrics, ResumingAtTheLastStepKeepsEverything) {
  TemporaryDirectory d;
  const std::string path = write_five(d / "metrics.jsonl"), before = read_text(path);
  { MetricsFile file(path, 5); }
  EXPECT_EQ(read_text(path), before);
}

TEST(Metrics, ALineThatWasBeingWrittenIsCut) {
  TemporaryDirectory d;
  const std::string path = write_five(d / "metrics.jsonl"), before = read_text(path);
  write_text(path, before + "{\"step\":6,\"lo");
  MetricsFile file(path, 9);
  EXPECT_EQ(read_text(path), before);
}

TEST(Metrics, ANewRunBeginsAnEmptyFile) {
  TemporaryDirectory d;
  const std::string path = write_five(d / "metrics.jsonl");
  MetricsFile file(path);
  EXPECT_EQ(read_text(path), "");
}

TEST(Metrics, AForeignFileIsAnErrorAndStaysAsItWas) {
  TemporaryDirectory d;
  for (const char* text : {"dear diary\n", "{\"loss\":1}\n", "[1]\n"}) {
    write_text(d / "diary.txt", text);
    const std::string error = error_of([&] { MetricsFile(d / "diary.txt", 100); });
    EXPECT_TRUE(holds(error, {"diary.txt, line 1", "not a line of metrics"})) << error;
    EXPECT_EQ(read_text(d / "diary.txt"), text);
  }
}

TEST(Metrics, C9_LinesThatADiskDoesNotTakeAreWrittenOnceItDoes) {
  TemporaryDirectory d;
  MetricsFile file(d / "metrics.jsonl");
  file.write(1, {});
  const auto limit_file_size = [](rlim_t bytes) {
    struct rlimit limit {};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  };
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  limit_file_size(15);  // the second line is cut after 4 of its 11 bytes
  EXPECT_TRUE(holds(error_of([&] { file.write(2, {}); }), {"metrics.jsonl", "too large"}));
  EXPECT_THROW(file.write(3, {}), Error);
  limit_file_size(RLIM_INFINITY);
  file.write(4, {});
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(read_text(d / "metrics.jsonl"),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
}

TEST(Metrics, APathThatCannotBeWrittenIsAnError) {
  TemporaryDirectory d;
  EXPECT_TRUE(holds(error_of([&] { MetricsFile{d / "no/metrics.jsonl"}; }),
                    {"no/metrics.jsonl", "No such file"}));
  MetricsFile full("/dev/full");  // a disk without room
  EXPECT_TRUE(holds(error_of([&] { full.write(1, {}); }), {"/dev/full", "No space left"}));
}

}  // namespace
}  // namespace gradus::train
