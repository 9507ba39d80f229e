#include "train/generate.h"

#include <gtest/gtest.h>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/devices.h"
#include "tests/train/tiny_run.h"

namespace gradus::train {
namespace {

std::vector<int32_t> write(LanguageModel& model, int64_t count, const Sampling& sampling,
                           uint64_t seed) {
  TextGenerator generator(model, {'t', 'h', 'e'}, sampling, seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(generator.next());
  return ids;
}

// The likeliest next id, from one pass over all ids without a cache.
int32_t likeliest_after(LanguageModel& model, const std::vector<int32_t>& ids) {
  const NoGrad no_grad;
  const nn::Evaluating evaluating(model.module());
  const Tensor logits = (*model.gpt)(model.ids(ids, 1));
  return int32_t(argmax(select(logits, 1, logits.size(1) - 1), 1).item());
}

TEST(Generate, S16_TokenByTokenIsAFullPass) {
  for (Device device : test_devices())
    for (const char* family : {"gpt2", "llama"}) {
      TemporaryDirectory d;
      TinyRun run(tiny_settings(d, family), device);
      for (int i = 0; i < 10; ++i) train_step(run.state, *run.data.training, run.settings);
      std::vector<int32_t> ids = {'t', 'h', 'e'};
      for (int32_t next : write(run.state.model, 13, {.temperature = 0}, 1)) {  // context 16
        EXPECT_EQ(next, likeliest_after(run.state.model, ids)) << family << ' ' << ids.size();
        ids.push_back(next);
      }
    }
}

TEST(Generate, WhereTheContextIsFullItsNewerHalfIsReadAgain) {
  TemporaryDirectory d;
  TinyRun run(tiny_settings(d, "gpt2"));
  for (int i = 0; i < 10; ++i) train_step(run.state, *run.data.training, run.settings);
  std::vector<int32_t> ids = {'t', 'h', 'e'};
  for (int32_t next : write(run.state.model, 30, {.temperature = 0}, 1)) ids.push_back(next);
  // 16 tokens fit. The 17th is drawn after all of them, the 18th after the last 8, and so on up to 16.
  const auto from_to = [&](size_t from, size_t to) {
    return std::vector<int32_t>(ids.begin() + long(from), ids.begin() + long(to));
  };
  EXPECT_EQ(ids[16], likeliest_after(run.state.model, from_to(0, 16)));
  EXPECT_EQ(ids[17], likeliest_after(run.state.model, from_to(9, 17)));
  EXPECT_EQ(ids[25], likeliest_after(run.state.model, from_to(9, 25)));
  EXPECT_EQ(ids[26], likeliest_after(run.state.model, from_to(18, 26)));
}

TEST(Generate, TheSeedDecides) {
  TemporaryDirectory d;
  TinyRun run(tiny_settings(d, "gpt2"));
  const auto first = write(run.state.model, 20, {}, 1);
  EXPECT_EQ(write(run.state.model, 20, {}, 1), first);
  EXPECT_NE(write(run.state.model, 20, {}, 2), first);
  EXPECT_TRUE(run.state.model.module().training);  // as it was
}

TEST(Generate, ALongPromptKeepsItsEnd) {
  TemporaryDirectory d;
  TinyRun run(tiny_settings(d, "llama"));
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 40; ++i) ids.push_back(97 + i % 26);
  TextGenerator generator(run.state.model, ids, {.temperature = 0}, 1);
  const std::vector<int32_t> end(ids.end() - 8, ids.end());
  EXPECT_EQ(generator.next(), likeliest_after(run.state.model, end));
}

TEST(Generate, AnEmptyPromptIsAnError) {
  TemporaryDirectory d;
  TinyRun run(tiny_settings(d, "gpt2"));
  EXPECT_TRUE(holds(error_of([&] { TextGenerator(run.state.model, {}, {}, 1); }), {"prompt"}));
}

}  // namespace
}  // namespace gradus::train
