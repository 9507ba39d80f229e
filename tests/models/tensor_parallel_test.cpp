// A model that is cut over ranks is the model of one rank: the same values at the start, the same logits and
// losses, and the same gradient of every parameter, with dropout on.
#include "parallel/tensor_parallel.h"

#include <memory>

#include "autograd/node.h"
#include "models/bert.h"
#include "models/gpt.h"
#include "parallel/run_ranks.h"
#include "tests/devices.h"
#include "tests/parallel/rank_helpers.h"

namespace gradus {
namespace {

using parallel::Communicator;
using parallel::TensorParallel;

constexpr int64_t kBatch = 3, kLength = 8, kVocab = 97;  // an odd batch, a prime vocabulary

GptConfig gpt2() {
  return {.layers = 2,
          .width = 16,
          .heads = 4,
          .vocab = kVocab,
          .max_length = kLength + 1,
          .dropout = 0.2};
}
GptConfig llama(int64_t kv_heads) {
  GptConfig c = gpt2();
  c.kv_heads = kv_heads, c.ffn = 12;
  c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = Activation::swiglu;
  c.tied = c.bias = false;
  return c;
}
BertConfig bert() {
  return {.layers = 2,
          .width = 16,
          .heads = 4,
          .vocab = kVocab,
          .max_length = kLength + 1,
          .dropout = 0.2};
}

Tensor some_ids(int64_t first, int64_t limit) {
  std::vector<double> values;
  for (int64_t i = 0; i < kBatch * kLength; ++i)
    values.push_back(double((first + 5 * i + i * i / 3) % limit));
  return tensor(values, {kBatch, kLength}, DType::i32);
}

/// Away from the start, where biases are 0 and gradients small.
template <class Model, class Config>
std::unique_ptr<Model> make(const Config& config, const TensorParallel& tp = {}) {
  auto model = std::make_unique<Model>(config, tp);
  model->cast(DType::f64);
  nn::name_parameters(*model);
  for (nn::Parameter p : model->parameters()) {
    p.init = nn::init::normal(0.3, p.rank() == 1 ? 0.8 : 0);
    nn::initialize(p, Philox::at(5, fnv1a(p.name().c_str())));
  }
  return model;
}

struct Layout {
  int ranks;
  bool sequence;
  bool recompute = false;

  std::string describe() const {
    return std::to_string(ranks) + " ranks, sequence " + std::to_string(sequence) + ", recompute " +
           std::to_string(recompute);
  }
};

// Depth 2, sums of at most 97 products of size 1 in f64: 1e-12 leaves a factor of a hundred. A mask, a
// bias or a sum that is wrong counts 1e-3 and more.
constexpr double kTolerance = 1e-12;

/// loss(model, random, device) → a number. On GPUs two of the layouts will do.
template <class Model, class Config, class Loss>
void expect_serial_gradients(const Config& config, const std::vector<Layout>& layouts, Loss loss) {
  constexpr int64_t kFirstSample = 2;
  auto serial = make<Model>(config);
  Generator masks(7);
  Tensor expected = loss(*serial, Randomness(&masks, kFirstSample), kCpu);
  expected.backward();
  const parallel::Gradients gradients = parallel::gradients_of(*serial);
  auto expect_on = [&](const Layout& layout, Device device) {
    parallel::run_ranks(layout.ranks, [&](Communicator world) {
      const Device mine = parallel::device_of(world, device);
      auto model = make<Model>(config, {world, layout.sequence});
      model->to(mine);
      model->recompute_blocks = layout.recompute;
      Generator own(7);
      Tensor result = loss(*model, Randomness(&own, kFirstSample), mine);
      EXPECT_NEAR(result.item() / expected.item(), 1, kTolerance) << layout.describe();
      result.backward();
      expect_gradients(*model, gradients, world, kTolerance, layout.describe());
    });
  };
  for (const Layout& layout : layouts) expect_on(layout, kCpu);
  for (Device device : test_devices())
    if (device.is_cuda()) expect_on({2, false}, device), expect_on({2, true}, device);
}

Tensor gpt_loss(const Gpt& gpt, const Randomness& random, Device device = kCpu) {
  Tensor targets = some_ids(4, kVocab);
  for (int64_t i : {0, 3, 8, 9, 10, 11, 12, 13, 14, 15})  // sample 1 has none
    targets.set(i, -100);
  return gpt.loss(to(some_ids(1, kVocab), device), to(targets, device), random,
                  {.label_smoothing = 0.1, .reduction = Reduction::sum, .scale = 0.25});
}

const std::vector<Layout> kLayouts{{2, false},      {2, true}, {4, false},
                                   {4, true, true}, {1, true}, {2, false, true}};

TEST(TensorParallelGpt, GradientsAreThoseOfOneRank) {
  expect_serial_gradients<Gpt>(gpt2(), kLayouts, gpt_loss);
  GptConfig untied = gpt2();
  untied.tied = false;
  expect_serial_gradients<Gpt>(untied, {{2, true}}, gpt_loss);
}

TEST(TensorParallelGpt, GradientsOfGatedAndGroupedModels) {
  expect_serial_gradients<Gpt>(llama(2), kLayouts, gpt_loss);  // 4 ranks: two share keys and values
  expect_serial_gradients<Gpt>(llama(1), {{2, false}, {4, true}}, gpt_loss);
  GptConfig tied = llama(4);
  tied.tied = tied.bias = true;
  expect_serial_gradients<Gpt>(tied, {{2, true}, {4, false}}, gpt_loss);
}

struct BertBatch {
  BertInputs inputs;
  BertTargets targets;

  explicit BertBatch(bool asks = true, Device device = kCpu) {
    inputs = {some_ids(1, kVocab), some_ids(0, 2), full({kBatch, kLength}, 1, DType::u8)};
    for (int64_t i : {6, 7, 23}) inputs.mask.set(i, 0);
    targets.places = tensor({1, 4, 8, 13, 22}, {5}, DType::i64);
    targets.words = tensor({3, 96, 55, -100, 56}, {5}, DType::i32);
    targets.random = tensor({1, 0, -100}, {3}, DType::i32);
    if (!asks) {
      targets.places = zeros({0}, DType::i64);
      targets.words = zeros({0}, DType::i32);
    }
    for (Tensor* t : {&inputs.ids, &inputs.types, &inputs.mask, &targets.places, &targets.words,
                      &targets.random})
      *t = to(*t, device);
  }
};

Tensor bert_loss(const Bert& bert, const Randomness& random, Device device) {
  const BertBatch batch(true, device);
  const BertLoss loss = bert.loss(batch.inputs, batch.targets, random);
  return loss.words.sum * 0.25 + loss.sentences.sum * 0.5;
}

TEST(TensorParallelBert, GradientsAreThoseOfOneRank) {
  expect_serial_gradients<Bert>(bert(), kLayouts, bert_loss);
}

TEST(TensorParallelBert, CountsAndABatchThatAsksForNoWord) {
  const BertBatch all, none(false);
  parallel::run_ranks(2, [&](Communicator world) {
    for (bool sequence : {false, true}) {
      auto model = make<Bert>(bert(), {world, sequence});
      model->eval();
      const BertLoss some = model->loss(all.inputs, all.targets);
      EXPECT_EQ(some.words.count.item(), 4);
      EXPECT_EQ(some.sentences.count.item(), 2);
      const BertLoss zero = model->loss(none.inputs, none.targets);
      EXPECT_EQ(zero.words.sum.item(), 0);
      EXPECT_EQ(zero.words.count.item(), 0);
    }
  });
}

// ---- values

template <class Model, class Config>
void expect_slices_at_the_start(const Config& config) {
  Model serial(config);
  nn::initialize(serial, 11);
  std::map<std::string, std::vector<double>> whole;
  for (const auto& [name, p] : serial.named_parameters()) whole[name] = p.to_vector();
  parallel::run_ranks(4, [&](Communicator world) {
    Model part(config, {world});
    nn::initialize(part, 11);
    EXPECT_EQ(part.named_parameters().size(), whole.size());
    for (const auto& [name, p] : part.named_parameters()) {
      std::vector<double> values = p.to_vector();
      for (size_t i = size_t(p.real_numel()); i < values.size(); ++i) EXPECT_EQ(values[i], 0);
      values.resize(size_t(p.real_numel()));
      EXPECT_EQ(values, parallel::shard_of(whole.at(name), p)) << name;
    }
  });
}

TEST(TensorParallelGpt, R10_StartsFromSlicesOfTheSerialModel) {
  expect_slices_at_the_start<Gpt>(gpt2());
  expect_slices_at_the_start<Gpt>(llama(2));
  expect_slices_at_the_start<Bert>(bert());
}

TEST(TensorParallelGpt, LogitsAreThoseOfOneRankOnAllRanks) {
  for (const GptConfig& config : {gpt2(), llama(2)}) {
    const Tensor ids = some_ids(1, kVocab);
    auto serial = make<Gpt>(config);
    serial->eval();
    const Tensor expected = (*serial)(ids);
    parallel::run_ranks(4, [&](Communicator world) {
      for (bool sequence : {false, true}) {
        auto model = make<Gpt>(config, {world, sequence});
        model->eval();
        Tensor logits = (*model)(ids);
        EXPECT_EQ(logits.shape(), expected.shape());
        parallel::expect_close(logits.to_vector(), expected.to_vector(), size_t(kVocab), kTolerance,
                               "logits");
      }
    });
  }
}

// With dropout on: what all ranks have is the same to the bit on each, and at every run; blocks that run twice
// change no gradient.
TEST(TensorParallelGpt, A5_ReplicasAndRepetitionsAreEqualToTheBit) {
  for (bool sequence : {false, true})
    parallel::run_ranks(4, [&](Communicator world) {
      auto run = [&](bool recompute) {
        auto model = make<Gpt>(gpt2(), {world, sequence});
        model->recompute_blocks = recompute;
        Generator masks(7);
        gpt_loss(*model, &masks).backward();
        std::vector<std::vector<double>> all;
        for (const nn::Parameter& p : model->parameters()) {
          Tensor grad = p.shard.partial_grad ? world.all_reduce(p.grad()) : p.grad();
          all.push_back(grad.to_vector());
          if (p.shard.dim >= 0) continue;
          EXPECT_EQ(all.back(), world.broadcast(grad).to_vector()) << p.name();
        }
        return all;
      };
      const auto gradients = run(false);
      EXPECT_EQ(run(false), gradients);
      EXPECT_EQ(run(true), gradients);
    });
}

TEST(TensorParallelBert, ScoresAreThoseOfOneRankOnAllRanks) {
  const BertBatch batch;
  auto serial = make<Bert>(bert());
  serial->eval();
  NoGrad no_grad;
  const Tensor h = (*serial)(batch.inputs);
  const Tensor words = serial->word_logits(rows_at(h, batch.targets.places));
  const Tensor next = serial->next_logits(serial->pooled(h));
  parallel::run_ranks(2, [&](Communicator world) {
    NoGrad none;
    for (bool sequence : {false, true}) {
      auto model = make<Bert>(bert(), {world, sequence});
      model->eval();
      Tensor ours = (*model)(batch.inputs);
      EXPECT_EQ(ours.shape(), h.shape());
      Tensor logits = model->word_logits(rows_at(ours, batch.targets.places));
      EXPECT_EQ(logits.shape(), words.shape());
      parallel::expect_close(logits.to_vector(), words.to_vector(), size_t(kVocab), kTolerance,
                             "words");
      parallel::expect_close(model->next_logits(model->pooled(ours)).to_vector(), next.to_vector(),
                             2, kTolerance, "next");
    }
  });
}

// ---- what cannot be

TEST(TensorParallelGpt, WhatCannotBeCutIsAnError) {
  parallel::run_ranks(2, [](Communicator world) {
    GptConfig heads = gpt2(), groups = gpt2();
    heads.width = 12, heads.heads = 3;
    EXPECT_THROW(Gpt(heads, {world}), Error);
    groups.width = 24, groups.heads = 6, groups.kv_heads = 3;
    EXPECT_THROW(Gpt(groups, {world}), Error);
    Gpt gpt(gpt2(), {world, true});
    gpt.eval();
    EXPECT_THROW(gpt(zeros({1, 5}, DType::i32)), Error);  // 5 tokens over 2 ranks
    KvCache cache(gpt2(), 1, 8);
    EXPECT_THROW(gpt.next_logits(zeros({1, 2}, DType::i32), cache), Error);
    Bert bert_of_rows(bert(), {world, true});
    EXPECT_THROW(bert_of_rows.word_logits(zeros({2, 16})), Error);  // no gradient by this way
  });
}

}  // namespace
}  // namespace gradus
