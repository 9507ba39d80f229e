// A BERT in the training loop.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "tests/devices.h"
#include "tests/train/tiny_run.h"
#include "train/generate.h"
#include "train/masked_loss.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

/// Documents that each keep to words of their own, so that there is something to tell apart.
std::string documents(int count) {
  std::string text;
  for (int d = 0; d < count; ++d, text += "\n")
    for (uint64_t s = 0; s < 6; ++s) {
      text += "and";
      for (uint64_t w = 0; w < 4; ++w) {
        const uint64_t bits = mix(uint64_t(d) * 64 + s * 8 + w);
        text += std::string(" ") + char('a' + d * 7 % 11) + "o" + char('a' + bits % 5);
      }
      text += " end\n";
    }
  return text;
}

Settings tiny_bert(const TemporaryDirectory& d) {
  Choices c;
  c.model = "bert-tiny";
  c.text = write_text(d / "text.txt", documents(40));
  c.layers = 2, c.width = 16, c.heads = 2, c.ffn = 32, c.vocabulary = 60;
  c.length = 24, c.batch = 4, c.accumulate = 2, c.dropout = 0.1, c.holdout = 0.1;
  c.steps = 12, c.lr = 1e-2, c.warmup = 2, c.eval_every = 3, c.save_every = 5, c.eval_tokens = 96;
  Settings s = resolve(c, false);
  validate(s);
  return s;
}

// C8, R8: as for a GPT; the masks, the pairs and their order go on as they would have.
TEST(BertRun, C8_R8_StoppedAndResumedIsUninterrupted) {
  for (Device device : test_devices())
    for (const char* dtype : {"f32", "bf16"}) {
      TemporaryDirectory d;
      Settings s = tiny_bert(d);
      s.dtype = dtype;
      const Outcome whole = TinyRun(s, device).run(d / "whole");
      for (int64_t stop : {3, 7})
        EXPECT_FALSE(TinyRun(s, device).run(d / "parts", {.stop_at = stop}).finished);
      const Outcome parts = TinyRun(s, device).run(d / "parts");
      EXPECT_TRUE(parts.finished);
      EXPECT_EQ(hashes_of(parts.checkpoint), hashes_of(whole.checkpoint)) << device << ' ' << dtype;
      EXPECT_EQ(metrics_of(d / "parts"), metrics_of(d / "whole"));
      EXPECT_EQ(parts.validation->right, whole.validation->right);
    }
}

TEST(BertRun, LearnsAndCountsWhatItGetsRight) {
  TemporaryDirectory d;
  Settings s = tiny_bert(d);
  s.steps = s.decay_steps = 150, s.dropout = 0, s.accumulate = 1, s.batch = 16, s.eval_every = 0;
  s.eval_tokens = 0;
  TinyRun run(s);
  const Outcome outcome = run.run(d / "run");
  ASSERT_TRUE(outcome.validation.has_value());
  const Scores& scores = *outcome.validation;
  EXPECT_EQ(scores.count, run.data.validation->targets());
  EXPECT_EQ(scores.pairs.count, run.data.validation->windows());
  // "and", "end" and the letters of a document are told from what stands around them.
  EXPECT_LT(scores.mean(), *run.data.validation->unigram_entropy() - 0.5);
  const auto line = metrics_of(d / "run").back();
  EXPECT_EQ(line["accuracy"], scores.accuracy());
  EXPECT_EQ(line["next_accuracy"], scores.pair_accuracy());
  EXPECT_TRUE(holds(run.shown.str(), {"unigram entropy", "next sentence", "95 % confidence"}));
}

// f32 sums in another order differ by 64 · 2⁻²⁴ = 4e-6 at first; Adam divides gradients by their size.
TEST(BertRun, C7_P6_MicroBatchesDoNotChangeWhatIsLearned) {
  TemporaryDirectory d;
  Settings s = tiny_bert(d);
  s.dropout = 0, s.steps = 5;
  const auto metrics = metrics_by_micro_batches(s, d);
  for (size_t i = 0; i < 5; ++i)
    for (const auto& other : {metrics[1], metrics[2]}) {
      const double a = metrics[0][i]["loss"], b = other[i]["loss"];
      EXPECT_NEAR(a, b, (i == 0 ? 4e-6 : 1e-3) * a);
    }
}

TEST(BertRun, TheLossOfABatchIsThatOfTheModel) {
  TemporaryDirectory d;
  TinyRun run(tiny_bert(d));
  const nn::Evaluating evaluating(run.state.model.module());
  const Batch b = run.data.training->batch(0, 4);
  const double weight = double(b.target_count()) / 4;  // of the four pairs
  const double whole = masked_loss_sum(run.state.model, b, 0, 4, {}, weight).item();
  Scores scores = masked_scores(run.state.model, b, 0, 3);
  scores += masked_scores(run.state.model, b, 3, 1);
  EXPECT_EQ(scores.count, b.target_count());
  EXPECT_EQ(scores.pairs.count, 4);
  // Sums of some 15 terms near 4 in f32: 15 · 2⁻²⁴ of the whole.
  EXPECT_NEAR(whole / double(b.target_count()), scores.mean() + scores.pairs.mean(), 1e-5);
}

TEST(BertRun, R6_RecomputationDoesNotChangeABit) {
  TemporaryDirectory d;
  Settings s = tiny_bert(d);
  s.steps = 4;
  const Outcome kept = TinyRun(s).run(d / "kept");
  s.recompute = true;
  EXPECT_EQ(hashes_of(TinyRun(s).run(d / "again").checkpoint), hashes_of(kept.checkpoint));
}

TEST(BertRun, E4_EveryBertTrains) {
  TemporaryDirectory d;
  for (const std::string& name : BertConfig::preset_names()) {
    Settings s = preset(name);
    const Settings small = tiny_bert(d);
    s.text = small.text, s.vocabulary = 60, s.dtype = "f32", s.min_lr = s.lr, s.warmup = 0;
    s.layers = 1, s.width = 16, s.heads = s.kv_heads = 2, s.ffn = 24, s.whole_words = true;
    s.length = 16, s.batch = 4, s.steps = s.decay_steps = 2, s.vocabulary = 32;
    for (const char* kind : {"bpe", "unigram"}) {
      s.tokenizer = kind;
      validate(s);
      EXPECT_TRUE(TinyRun(s).run(d / (name + kind)).finished) << name << ' ' << kind;
    }
  }
}

TEST(BertRun, E3_WhatDoesNotFitABertIsAnError) {
  TemporaryDirectory d;
  Settings s = tiny_bert(d);
  const auto error = [&](auto change) {
    Settings changed = s;
    change(changed);
    return error_of([&] { validate(changed); });
  };
  EXPECT_TRUE(holds(error([](Settings& x) { x.tokenizer = "bytes"; }), {"--tokenizer bpe"}));
  EXPECT_TRUE(holds(error([](Settings& x) { x.mask = 0; }), {"--mask", "got 0"}));
  EXPECT_TRUE(holds(error([](Settings& x) { x.kv_heads = 1; }), {"--kv-heads"}));
  EXPECT_TRUE(holds(error([](Settings& x) { x.tied = false; }), {"--tied=false"}));
  EXPECT_TRUE(
      holds(error([](Settings& x) { x.family = "gpt2"; }), {"--mask", "--family bert", "gpt2"}));
  TinyRun run(s);
  EXPECT_TRUE(holds(error_of([&] { TextGenerator(run.state.model, {5}, {}, 1); }), {"only a GPT"}));
}

}  // namespace
}  // namespace gradus::train
