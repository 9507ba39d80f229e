// Random numbers by place: what a step drops does not depend on how its batch is cut.
#include "models/places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "models/bert.h"
#include "models/gpt.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
constexpr int64_t kSamples = 4, kLength = 6;

Tensor some_ids(int64_t first) {
  std::vector<double> values;
  for (int64_t i = 0; i < kSamples * kLength; ++i)
    values.push_back(double((first + 5 * i + i * i / 3) % 11));
  return tensor(values, {kSamples, kLength}, DType::i32);
}

/// Σ of the losses of samples from … to − 1.
using Loss = std::function<Tensor(int64_t from, int64_t to, const Randomness&)>;

/// The gradients of all parameters, summed over micro-batches that begin at `cuts`.
std::vector<Values> gradients(nn::Module& model, const Loss& loss, std::vector<int64_t> cuts,
                              bool know_their_samples = true) {
  cuts.push_back(kSamples);
  for (const nn::Parameter& p : model.parameters()) p.set_grad({});
  for (size_t m = 0; m + 1 < cuts.size(); ++m) {
    Generator masks(5);
    loss(cuts[m], cuts[m + 1], {&masks, know_their_samples ? cuts[m] : 0}).backward();
    EXPECT_EQ(masks.state().streams, 1u);
  }
  std::vector<Values> all;
  for (const nn::Parameter& p : model.parameters()) all.push_back(p.grad().to_vector());
  return all;
}

double difference(const std::vector<Values>& a, const std::vector<Values>& b) {
  double worst = 0;
  for (size_t p = 0; p < a.size(); ++p)
    for (size_t i = 0; i < a[p].size(); ++i) worst = std::max(worst, std::abs(a[p][i] - b[p][i]));
  return worst;
}

// Sums of a few hundred terms of size 1 in f64, in another order: 1e-12. An element that is dropped in one
// and kept in the other counts 1e-3 and more.
void expect_independent_of_cuts(nn::Module& model, const Loss& loss) {
  const auto whole = gradients(model, loss, {0});
  EXPECT_LT(difference(gradients(model, loss, {0, 1}), whole), 1e-12);
  EXPECT_LT(difference(gradients(model, loss, {0, 2}), whole), 1e-12);
  EXPECT_LT(difference(gradients(model, loss, {0, 1, 2, 3}), whole), 1e-12);
  EXPECT_GT(difference(gradients(model, loss, {0, 2}, false), whole), 1e-3);
}

Tensor rows(const Tensor& x, int64_t from, int64_t to) { return slice(x, 0, from, to); }

TEST(Places, R5_MicroBatchesOfAGptDrawPartsOfTheMasksOfTheBatch) {
  GptConfig gpt2{
      .layers = 2, .width = 12, .heads = 3, .vocab = 11, .max_length = 8, .dropout = 0.2};
  GptConfig llama = gpt2;
  llama.heads = 4, llama.kv_heads = 2, llama.norm = NormKind::rms, llama.bias = false;
  llama.width = 16, llama.position = PositionKind::rope;
  const Tensor ids = some_ids(0), targets = some_ids(3);
  for (const GptConfig& config : {gpt2, llama})
    for (bool recompute : {false, true}) {
      Gpt gpt(config);
      gpt.recompute_blocks = recompute;
      gpt.cast(DType::f64);
      nn::initialize(gpt, 7);
      expect_independent_of_cuts(gpt, [&](int64_t from, int64_t to, const Randomness& random) {
        return gpt.loss(rows(ids, from, to), rows(targets, from, to), random,
                        {.reduction = Reduction::sum});
      });
    }
}

TEST(Places, R5_MicroBatchesOfABertDrawPartsOfTheMasksOfTheBatch) {
  const BertInputs all{some_ids(0), zeros({kSamples, kLength}, DType::i32), {}};
  const Tensor words = some_ids(3), random_pairs = tensor({0, 1, 1, 0}, {kSamples}, DType::i32);
  for (bool recompute : {false, true}) {
    Bert bert({.layers = 2, .width = 12, .heads = 3, .vocab = 11, .max_length = 8, .dropout = 0.2});
    bert.recompute_blocks = recompute;
    bert.cast(DType::f64);
    nn::initialize(bert, 7);
    expect_independent_of_cuts(bert, [&](int64_t from, int64_t to, const Randomness& random) {
      const BertInputs in{rows(all.ids, from, to), rows(all.types, from, to), {}};
      const BertTargets targets{arange((to - from) * kLength), reshape(rows(words, from, to), {-1}),
                                rows(random_pairs, from, to)};
      const BertLoss loss = bert.loss(in, targets, random);
      return loss.words.sum + loss.sentences.sum;
    });
  }
}

}  // namespace
}  // namespace gradus
