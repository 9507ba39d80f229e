// A preset on a file of token ids, as `gradus train --model gpt2-124m --data train.bin` runs it, with
// sizes that a CPU trains in a moment.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/tiny_run.h"

namespace gradus::train {
namespace {

// llm.c's format: a header of 256 int32, then uint16 ids. Of three that follow each other by a rule,
// two are among the highest that GPT-2 has.
std::string token_file(const TemporaryDirectory& d, int64_t count) {
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520, header[1] = 1, header[2] = int32_t(count);
  constexpr uint16_t kIds[] = {50256, 3, 50255};
  std::vector<uint16_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(kIds[i % 3]);
  const std::string path = d / "train.bin";
  write_values(path, header);
  std::ofstream(path, std::ios::binary | std::ios::app)
      .write(reinterpret_cast<const char*>(ids.data()), std::streamsize(2 * ids.size()));
  return path;
}

Settings settings_for(const std::string& data) {
  Choices c;
  c.model = "gpt2-124m";
  c.data = data;
  c.layers = 1, c.width = 16, c.heads = 2, c.length = 16, c.batch = 4, c.holdout = 0.1;
  c.steps = 30, c.lr = 3e-2, c.warmup = 0, c.eval_every = 0;
  Settings s = resolve(c, false);
  validate(s);
  return s;
}

TEST(TokenRun, APresetLearnsFromATokenFile) {
  TemporaryDirectory d;
  TinyRun run(settings_for(token_file(d, 3000)));
  EXPECT_EQ(run.settings.vocabulary, 50304);  // GPT-2's 50257 ids, and rows to a multiple of 128
  const Outcome outcome = run.run(d / "run");
  EXPECT_TRUE(outcome.finished);
  const auto metrics = metrics_of(d / "run");
  ASSERT_EQ(metrics.size(), 30u);
  EXPECT_NEAR(metrics[0]["loss"].get<double>(), std::log(50304), 0.1);
  EXPECT_LT(outcome.validation->mean(), 3);
  EXPECT_EQ(metrics[29]["tokens"], 30 * 4 * 16);
}

}  // namespace
}  // namespace gradus::train
