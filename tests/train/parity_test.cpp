// Parallel equals serial, as the program does it: what tests/parallel/parity_test.cpp shows of the parts is
// shown here of the whole, the trainer's step and its checkpoints, which gradus diff compares. In f64 every
// layout has the gradients of one rank, per tensor and per row, its loss, its norm, and after three steps of
// AdamW its parameters. Ranks are threads.
//
// The data is unkind on purpose: targets are masked unevenly, one sample has a single target, and whole
// data ranks have none, which is where a mean of means would show. The vocabulary is prime, so the last
// tensor rank has padding. Dropout is on: masks are those of one rank, exactly.
#include <gtest/gtest.h>

#include "core/random.h"
#include "tests/train/tiny_run.h"
#include "train/layouts.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

constexpr int64_t kSamples = 16, kLength = 8, kVocabulary = 97;

// Samples that are a function of their number. Of runs of `run` samples, every other one has no targets.
class UnevenData final : public TrainingData {
 public:
  UnevenData(int64_t run, bool pairs) : run_(run), pairs_(pairs) {}

  int64_t windows() const override { return 1000; }
  int64_t tokens() const override { return windows() * kLength; }
  Batch batch(int64_t first, int64_t count) const override {
    Batch b;
    b.rows = count, b.length = kLength;
    for (int64_t j = first; j < first + count; ++j) add(b, j);
    return b;
  }

 private:
  void add(Batch& b, int64_t sample) const {
    const int64_t padding = pairs_ ? sample % 3 : 0;  // tokens at the end
    for (int64_t t = 0; t < kLength; ++t) {
      const uint64_t random = mix(uint64_t(sample * kLength + t));
      const bool counts = (sample / run_) % 2 == 0 && t < kLength - padding &&
                          (sample % kSamples == 0 ? t == 3 : random % 3 != 0);
      b.inputs.push_back(int32_t(random % kVocabulary));
      b.targets.push_back(counts ? int32_t(mix(random) % kVocabulary) : kIgnoreTarget);
      if (!pairs_) continue;
      b.types.push_back(t >= kLength / 2);
      b.mask.push_back(t < kLength - padding);
    }
    if (pairs_) b.random.push_back(sample % 5 == 4 ? kIgnoreTarget : int32_t(sample % 2));
  }

  int64_t run_;
  bool pairs_;
};

Settings settings_of_family(const std::string& family) {
  Settings s = preset(family == "bert"    ? "bert-tiny"
                      : family == "llama" ? "llama-tiny"
                                          : "gpt-tiny");
  s.text = "none";
  s.layers = 2, s.width = 16, s.heads = s.kv_heads = 4, s.ffn = 24;
  if (family == "llama") s.heads = 8, s.kv_heads = 2;  // with tp 4 and 8 ranks share them
  s.vocabulary = kVocabulary, s.length = kLength, s.batch = kSamples, s.dropout = 0.1;
  s.dtype = "f64", s.clip = 0.05, s.lr = 1e-3, s.min_lr = 1e-4, s.warmup = 2;
  s.steps = s.decay_steps = 10;
  return s;
}

struct Family {
  std::string name;
  bool tied = true;
  friend std::ostream& operator<<(std::ostream& out, const Family& f) {
    return out << f.name << (f.tied ? "_tied" : "");
  }
};

class Parity : public testing::TestWithParam<Family> {
 protected:
  static constexpr int64_t kMostRanks = 8;

  Settings base() const {
    Settings s = settings_of_family(GetParam().name);
    s.tied = GetParam().tied;
    return s;
  }
  // With M micro-batches on four data ranks, two of them have no target at all.
  UnevenData data(int64_t micro_batches) const {
    return UnevenData(kSamples / (4 * micro_batches), GetParam().name == "bert");
  }
  void compare(Settings s, int64_t steps, const DiffOptions& options);

  TemporaryDirectory directory_;
};

// All layouts with M micro-batches against one rank that takes the step as a whole.
void Parity::compare(Settings s, int64_t steps, const DiffOptions& options) {
  use_threads(1);
  int64_t layouts = 0;
  for (int64_t parts : {1, 2, 4}) {
    const UnevenData uneven = data(parts);
    const std::string name = "/" + std::to_string(parts);
    const CheckpointReader alone = train_layout(s, uneven, steps, directory_.path() + name);
    for (Settings layout : layouts_of(s, kMostRanks, {1})) {
      if (layout.dp * parts > kSamples) continue;
      layout.accumulate = parts;
      SCOPED_TRACE(layout_text(layout));
      const std::string path = directory_.path() + name + "_" + std::to_string(++layouts);
      const auto report = diff(alone, train_layout(layout, uneven, steps, path), options);
      std::ostringstream table;
      print(table, report, true);
      EXPECT_TRUE(report.agrees()) << table.str();
      EXPECT_EQ(report.numbers.size(), 3u);
      std::filesystem::remove_all(path);
    }
  }
  use_threads(0);
  // 1 alone; tp 2, 4 with and without sp: 4; dp 2, 4, 8 with and without zero: 6; both, with and without
  // either: (2, 2), (2, 4), (4, 2): 12. In 4 micro-batches there are too few samples for dp 8.
  // Eight heads allow tp 8.
  const int64_t wide = base().heads == 8 ? 2 : 0;
  EXPECT_EQ(layouts, 23 + 23 + 21 + 3 * wide);
}

// A1, A2, P1-P9: unclipped gradients.
TEST_P(Parity, A1_EveryLayoutHasTheGradientsOfOneRank) { compare(for_gradients(base()), 1, {}); }

// A3: norm, clip, decay, rates, moments.
TEST_P(Parity, A3_EveryLayoutHasTheParametersOfOneRankAfterThreeSteps) {
  compare(base(), 3, {.kind = "parameters", .bound = 1e-10});
}

INSTANTIATE_TEST_SUITE_P(Families, Parity,
                         testing::Values(Family{"gpt2", true}, Family{"gpt2", false},
                                         Family{"llama", true}, Family{"llama", false},
                                         Family{"bert", true}),
                         [](const auto& info) { return testing::PrintToString(info.param); });

}  // namespace
}  // namespace gradus::train
