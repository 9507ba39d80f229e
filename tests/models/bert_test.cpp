#include "models/bert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autograd/node.h"
#include "nn/summary.h"
#include "optim/adam.h"
#include "tests/devices.h"

namespace gradus {
namespace {

BertConfig micro(double dropout = 0) {
  return {.layers = 2,
          .width = 6,
          .heads = 2,
          .ffn = 8,
          .vocab = 9,
          .max_length = 7,
          .dropout = dropout,
          .deviation = 0.5};
}

std::unique_ptr<Bert> make(const BertConfig& config, DType dtype = DType::f64,
                           Device device = kCpu) {
  auto bert = std::make_unique<Bert>(config);
  bert->cast(dtype);
  bert->to(device);
  nn::initialize(*bert, 7);
  return bert;
}

/// Two texts of 7 tokens, the second with 2 of padding.
BertInputs two_texts(Device device = kCpu) {
  return {tensor({1, 5, 4, 2, 6, 7, 2, 1, 8, 2, 3, 2, 0, 0}, {2, 7}, DType::i32, device),
          tensor({0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0}, {2, 7}, DType::i32, device),
          tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 7}, DType::u8, device)};
}
BertTargets three_words(Device device = kCpu) {
  return {tensor({2, 5, 8}, {3}, DType::i64, device), tensor({6, 7, 3}, {3}, DType::i32, device),
          tensor({0, 1}, {2}, DType::i32, device)};
}

std::map<std::string, std::vector<double>> gradients(Bert& bert) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, parameter] : bert.named_parameters())
    all[name] = parameter.grad() ? parameter.grad().to_vector() : std::vector<double>();
  return all;
}

// ---- size and start

// Hugging Face's BertForPreTraining of bert-base-uncased: 109,482,240 in the encoder and its pooler;
// 590,592 + 1,536 + 30,522 in the MLM head beside the tied table; 1,538 in the NSP head.
TEST(Bert, ParameterCountOfBertBase) {
  Bert bert(BertConfig::preset("bert-base"));
  EXPECT_EQ(nn::count_parameters(bert).elements, 109482240 + 590592 + 1536 + 30522 + 1538);
}

TEST(Bert, NamesAreThoseOfTheFields) {
  Bert bert(micro());
  std::map<std::string, Shape> shapes;
  for (const auto& [name, p] : bert.named_parameters()) shapes.emplace(name, p.shape());
  EXPECT_EQ(shapes.size(), 3u + 2 + 2 * 12 + 2 + 2 + 2 + 1 + 2);
  EXPECT_EQ(shapes.at("words.weight"), (Shape{9, 6}));
  EXPECT_EQ(shapes.at("blocks.1.attention.qkv.weight"), (Shape{18, 6}));
  EXPECT_EQ(shapes.at("blocks.0.up.weight"), (Shape{8, 6}));
  EXPECT_EQ(shapes.at("head_bias"), (Shape{9}));
  EXPECT_EQ(shapes.at("next.weight"), (Shape{2, 6}));
}

TEST(Bert, Shapes) {
  for (Device device : test_devices())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      auto bert = make(micro(), dtype, device);
      Tensor h = (*bert)(two_texts(device));
      EXPECT_EQ(h.shape(), (Shape{2, 7, 6}));
      EXPECT_EQ(h.dtype(), dtype);
      EXPECT_EQ(bert->word_logits(rows_at(h, three_words(device).places)).shape(), (Shape{3, 9}));
      EXPECT_EQ(bert->next_logits(bert->pooled(h)).shape(), (Shape{2, 2}));
    }
}

// γ = 1 and β = 0 at first: a block ends in a norm, so each row has mean 0 and variance 1. Both sums
// have 6 terms of size about 1: a rounding error of a few 2⁻⁵³, far below 1e-13.
TEST(Bert, RowsAreNormalised) {
  Tensor h = (*make(micro()))(two_texts());
  for (int64_t row = 0; row < 14; ++row) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < 6; ++c)
      sum += h.at(row * 6 + c), squares += std::pow(h.at(row * 6 + c), 2);
    EXPECT_NEAR(sum / 6, 0, 1e-13);
    EXPECT_NEAR(squares / 6, 1, 1e-11);  // ε = 1e-12 beside a variance of order 1
  }
}

// ---- what sees what

// S11: whatever ids stand at padding, and were their vector NaN, nothing else changes by a bit.
TEST(Bert, S4_S11_PaddingReachesNothingElse) {
  for (Device device : test_devices()) {
    auto bert = make(micro(), DType::f32, device);
    BertInputs in = two_texts(device);
    auto seen = [&] {
      std::vector<double> h = (*bert)(in).to_vector();
      h.resize(12 * 6);  // without the two rows of padding, which come last
      return h;
    };
    const std::vector<double> before = seen();
    in.ids.set(12, 4), in.ids.set(13, 8), in.types.set(12, 1);
    EXPECT_EQ(seen(), before) << device;
    in.ids.set(12, 0);
    bert->words.weight.detach().set(0, NAN);  // of id 0
    EXPECT_EQ(seen(), before) << device;
  }
}

// The sums over keys have 5 instead of 7 terms of f64: at most a few 2⁻⁵³ of what is of order 1, grown
// by two blocks whose Jacobians have norms below 10.
TEST(Bert, APaddedTextIsReadLikeTheTextAlone) {
  auto bert = make(micro());
  Tensor padded = (*bert)(two_texts());
  BertInputs all = two_texts(), alone{slice(slice(all.ids, 0, 1, 2), 1, 0, 5),
                                      slice(slice(all.types, 0, 1, 2), 1, 0, 5),
                                      {}};
  Tensor h = (*bert)(alone);
  for (int64_t i = 0; i < 5 * 6; ++i) EXPECT_NEAR(padded.at(7 * 6 + i), h.at(i), 1e-12);
}

TEST(Bert, PaddingHasNoGradient) {
  auto bert = make(micro());
  bert->loss(two_texts(), three_words()).mean().backward();
  // Id 0 stands at padding alone; what is left is its gradient as a word that might have been chosen.
  Tensor h = (*bert)(two_texts()).detach(), rows = rows_at(h, three_words().places);
  auto table = bert->words.weight.grad().to_vector();
  bert->zero_grad();
  nn::cross_entropy_sum(bert->word_logits(rows), three_words().words).mean().backward();
  for (int64_t c = 0; c < 6; ++c) EXPECT_EQ(bert->words.weight.grad().at(c), table[size_t(c)]);
}

TEST(Bert, EveryTokenSeesBothSides) {
  auto bert = make(micro());
  BertInputs in = two_texts();
  Tensor h = (*bert)(in);
  for (int64_t changed : {1, 6}) {
    BertInputs other = two_texts();
    other.ids.set(changed, 3);
    Tensor g = (*bert)(other);
    for (int64_t t = 0; t < 7; ++t) EXPECT_NE(g.at(t * 6), h.at(t * 6)) << changed << ' ' << t;
    EXPECT_EQ(g.at(7 * 6), h.at(7 * 6));  // the other text does not
  }
}

// ---- loss

// With weights of 0 in front, the logits are the biases: p = (1/2, 1/4, 1/8, 1/16, …) and (3/4, 1/4).
TEST(Bert, P6_TheLossIsTheMeanOverWordsPlusTheMeanOverPairs) {
  auto bert = make(micro());
  NoGrad guard;
  fill_(bert->head_norm.weight, 0), fill_(bert->head_norm.bias, 0), fill_(bert->next.weight, 0);
  for (int64_t v = 0; v < 9; ++v)
    bert->head_bias.set(v, -std::log(2) * double(std::min<int64_t>(v + 1, 8)));
  bert->next.bias.set(0, std::log(3));
  BertLoss loss = bert->loss(two_texts(), three_words());
  // Words 6, 7 and 3: 7 ln 2, 8 ln 2 and 4 ln 2. Pairs 0 and 1: ln 4/3 and ln 4.
  EXPECT_NEAR(loss.words.sum.item(), 19 * std::log(2), 1e-12);
  EXPECT_EQ(loss.words.count.item(), 3);
  EXPECT_NEAR(loss.sentences.sum.item(), std::log(4. / 3) + std::log(4), 1e-12);
  EXPECT_EQ(loss.sentences.count.item(), 2);
  EXPECT_NEAR(loss.mean().item(), 19. / 3 * std::log(2) + (std::log(4. / 3) + std::log(4)) / 2,
              1e-12);
}

// Text by text, with 2 words and 1: sums of numerators over sums of counts are the loss of both at
// once, and the mean of means is not.
TEST(Bert, P6_MicroBatchesAddUp) {
  auto bert = make(micro());
  double sum = 0, count = 0, means = 0;
  for (int64_t i : {0, 1}) {
    BertInputs all = two_texts();
    BertInputs one{slice(all.ids, 0, i, i + 1), slice(all.types, 0, i, i + 1),
                   slice(all.mask, 0, i, i + 1)};
    BertTargets asked = three_words();
    asked.places = i == 0 ? slice(asked.places, 0, 0, 2) : tensor({1}, {1}, DType::i64);
    asked.words = slice(asked.words, 0, 2 * i, 2 + i),
    asked.random = slice(asked.random, 0, i, i + 1);
    nn::LossSum words = bert->loss(one, asked).words;
    sum += words.sum.item(), count += words.count.item(), means += words.mean().item() / 2;
  }
  const double both = bert->loss(two_texts(), three_words()).words.mean().item();
  EXPECT_NEAR(sum / count, both, 1e-12);
  EXPECT_GT(std::abs(means - both), 1e-3);
}

TEST(Bert, L1_P7_NoWordIsAskedFor) {
  for (Device device : test_devices()) {
    auto bert = make(micro(), DType::f32, device);
    BertTargets none = three_words(device);
    none.places = zeros({0}, DType::i64, device), none.words = zeros({0}, DType::i32, device);
    BertLoss loss = bert->loss(two_texts(device), none);
    EXPECT_EQ(loss.words.mean().item(), 0);
    loss.mean().backward();
    for (const auto& [name, gradient] : gradients(*bert))
      for (double g : gradient) EXPECT_TRUE(std::isfinite(g)) << name;
  }
}

// ---- gradients

// Central differences with step h err by h²/6 f‴ + 2⁻⁵³ |f|/h; at h = 1e-4 and f, f‴ of order 1 to 100
// that is below 2e-7, against gradients that reach 1. Dropout is on, with the same masks each time.
TEST(Bert, GradientIsThatOfCentralDifferences) {
  auto bert = make(micro(0.2));
  auto loss = [&] {
    Generator random(5);
    return bert->loss(two_texts(), three_words(), &random).mean();
  };
  loss().backward();
  NoGrad guard;
  double largest = 0;
  for (const auto& [name, parameter] : bert->named_parameters())
    for (int64_t i = 0; i < parameter.numel(); ++i) {
      const double value = parameter.at(i), h = 1e-4;
      parameter.set(i, value + h);
      const double up = loss().item();
      parameter.set(i, value - h);
      const double down = loss().item();
      parameter.set(i, value);
      EXPECT_NEAR(parameter.grad().at(i), (up - down) / (2 * h), 2e-6) << name << ' ' << i;
      largest = std::max(largest, std::abs(parameter.grad().at(i)));
    }
  EXPECT_GT(largest, 0.1);
}

TEST(Bert, R6_RecomputationDoesNotChangeABit) {
  auto bert = make(micro(0.3), DType::f32);
  std::vector<std::map<std::string, std::vector<double>>> all;
  for (bool recompute : {false, true}) {
    bert->recompute_blocks = recompute;
    bert->zero_grad();
    Generator random(3);
    bert->loss(two_texts(), three_words(), &random).mean().backward();
    EXPECT_EQ(random.state().streams, 1u);
    all.push_back(gradients(*bert));
  }
  EXPECT_EQ(all[0], all[1]);
}

TEST(Bert, R3_R5_DropoutDrawsAnewAndEvaluationDrawsNothing) {
  auto bert = make(micro(0.3));
  Generator random(3);
  const double first = (*bert)(two_texts(), &random).at(0);
  EXPECT_NE((*bert)(two_texts(), &random).at(0), first);
  nn::Evaluating evaluating(*bert);
  EXPECT_EQ((*bert)(two_texts(), &random).to_vector(), (*bert)(two_texts()).to_vector());
  EXPECT_EQ(random.state().streams, 2u);
}

// The two orders of summation differ by the roundoff of f32, 6e-8, times the length of the sums, at
// most 14 · 18, of terms of order 1.
TEST(Bert, CpuAndGpuAgree) {
  std::vector<std::map<std::string, std::vector<double>>> all;
  for (Device device : test_devices()) {
    auto bert = make(micro(), DType::f32, device);
    bert->loss(two_texts(device), three_words(device)).mean().backward();
    all.push_back(gradients(*bert));
  }
  for (const auto& [name, expected] : all.front())
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(all.back()[name][i], expected[i], 2e-5) << name << ' ' << i;
}

// It can tell what it has seen: with each word in a place of its own, the masked one follows.
TEST(Bert, LearnsToFillIn) {
  auto bert = make(micro(), DType::f32);
  optim::Adam adam(*bert);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    Tensor loss = bert->loss(two_texts(), three_words()).mean();
    loss.backward();
    adam.step(1e-2);
    adam.zero_grad();
    last = loss.item();
    if (step == 0) first = last;
  }
  EXPECT_GT(first, 2);
  EXPECT_LT(last, 0.1);
}

// ---- errors

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
void expect_words(const std::string& error, std::initializer_list<const char*> words) {
  for (const char* w : words) EXPECT_NE(error.find(w), std::string::npos) << w << " in: " << error;
}

TEST(Bert, E1_WrongInputsAreNamed) {
  auto bert = make(micro());
  BertInputs in = two_texts();
  in.types = {};
  expect_words(error_of([&] { (*bert)(in); }), {"segment types"});
  in = two_texts(), in.mask = cast(in.mask, DType::i32);
  expect_words(error_of([&] { (*bert)(in); }), {"padding mask", "u8", "i32"});
  in = two_texts(), in.ids = select(in.ids, 0, 0);
  expect_words(error_of([&] { (*bert)(in); }), {"(batch, length)"});
  BertInputs longer{zeros({1, 8}, DType::i32), zeros({1, 8}, DType::i32), {}};
  expect_words(error_of([&] { (*bert)(longer); }), {"8 tokens", "7"});
  auto drops = make(micro(0.1));
  expect_words(error_of([&] { (*drops)(two_texts()); }), {"dropout", "generator"});
}

TEST(Bert, E5_WrongSizesNameWhatWouldFit) {
  BertConfig c = micro();
  c.width = 7;
  expect_words(error_of([&] { Bert bert(c); }), {"width 7", "2 heads", "6 or 8"});
  c = micro(), c.layers = 0;
  expect_words(error_of([&] { Bert bert(c); }), {"layers 0"});
  expect_words(error_of([] { BertConfig::preset("bert-huge"); }), {"bert-huge", "bert-base"});
}

}  // namespace
}  // namespace gradus
