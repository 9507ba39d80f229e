#include "models/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "autograd/node.h"
#include "nn/summary.h"
#include "optim/adam.h"
#include "tests/devices.h"

namespace gradus {
namespace {

/// Everything that is particular to each family, in a few hundred parameters.
GptConfig gpt2_style(double dropout = 0) {
  return {.layers = 2, .width = 12, .heads = 3, .vocab = 11, .max_length = 8, .dropout = dropout};
}
GptConfig llama_style(double dropout = 0) {
  return {.layers = 2,
          .width = 16,
          .heads = 4,
          .kv_heads = 2,
          .ffn = 10,
          .vocab = 11,
          .max_length = 8,
          .dropout = dropout,
          .norm = NormKind::rms,
          .position = PositionKind::rope,
          .activation = Activation::swiglu,
          .tied = false,
          .bias = false};
}
std::vector<GptConfig> both_styles(double dropout = 0) {
  return {gpt2_style(dropout), llama_style(dropout)};
}

std::unique_ptr<Gpt> make(const GptConfig& config, DType dtype = DType::f64, Device device = kCpu) {
  auto gpt = std::make_unique<Gpt>(config);
  gpt->cast(dtype);
  gpt->to(device);
  nn::initialize(*gpt, 7);
  return gpt;
}

/// Ids (B, T) that differ everywhere.
Tensor some_ids(int64_t B, int64_t T, int64_t first, Device device = kCpu) {
  std::vector<double> values;
  for (int64_t i = 0; i < B * T; ++i) values.push_back(double((first + 5 * i + i * i / 3) % 11));
  return tensor(values, {B, T}, DType::i32, device);
}

// ---- size and start

TEST(Gpt, ParameterCountsOfTheKnownModels) {
  struct {
    const char* name;
    int64_t count;
  } known[] = {{"gpt2-124m", 124439808}, {"gpt2-350m", 354823168}, {"llama-1.1b", 1100048384}};
  for (const auto& k : known) {
    Gpt gpt(GptConfig::preset(k.name));  // no memory is touched before it is initialised
    EXPECT_EQ(nn::count_parameters(gpt).elements, k.count) << k.name;
  }
}

TEST(Gpt, InitialDeviations) {
  Gpt gpt(GptConfig::preset("gpt-tiny"));
  nn::initialize(gpt, 3);
  auto deviation = [](const Tensor& w) {
    double squares = 0;
    for (double v : w.to_vector()) squares += v * v;
    return std::sqrt(squares / double(w.numel()));
  };
  // The estimate from n values has a relative deviation of 1/√(2n): 0.6 % for the smallest, n = 16384.
  EXPECT_NEAR(deviation(gpt.tokens.weight) / 0.02, 1, 0.03);
  EXPECT_NEAR(deviation(gpt.positions) / 0.02, 1, 0.03);
  for (const Block& b : gpt.blocks) {
    EXPECT_NEAR(deviation(b.attention.qkv.weight) / 0.02, 1, 0.03);
    EXPECT_NEAR(deviation(b.mlp.up.weight) / 0.02, 1, 0.03);
    EXPECT_NEAR(deviation(b.attention.out.weight) / (0.02 / std::sqrt(8)), 1, 0.03);
    EXPECT_NEAR(deviation(b.mlp.down.weight) / (0.02 / std::sqrt(8)), 1, 0.03);
    EXPECT_EQ(deviation(b.attention.qkv.bias), 0);
    EXPECT_EQ(deviation(b.norm1.weight), 1);
  }
}

// Logits of a fresh model are normal with variance v = C σ², since the last norm makes its rows of mean
// square 1. Then E log Σ e^z ≈ log V + v/2, and the target's logit is 0 on average.
TEST(Gpt, LossAtTheStartIsThatOfGuessing) {
  for (const char* name : {"gpt-tiny", "llama-tiny"}) {
    Gpt gpt(GptConfig::preset(name));
    nn::initialize(gpt, 3);
    gpt.eval();
    Generator g(1);
    Tensor ids = cast(uniform({4, 64}, g, 0, 256), DType::i32),
           targets = cast(uniform({4, 64}, g, 0, 256), DType::i32);
    double expected = std::log(256) + 128 * 0.02 * 0.02 / 2;
    EXPECT_NEAR(gpt.loss(ids, targets).item(), expected, 0.05)
        << name;  // 256 targets: 0.226/√256 = 0.014
  }
}

// ---- gradients

// Central differences, f64, ε = 1e-5: truncation ε² L‴/6 ~ 1e-10 and rounding 2⁻⁵³ L/ε ~ 3e-11.
TEST(Gpt, GradientOfEveryParameterIsThatOfTheLoss) {
  for (const GptConfig& config : both_styles())
    for (Device device : test_devices()) {
      auto gpt = make(config, DType::f64, device);
      for (nn::Parameter p : gpt->parameters()) {  // away from the start, where gradients are small
        p.init = nn::init::normal(p.rank() == 1 ? 0.3 : 0.4, p.rank() == 1 ? 0.8 : 0);
        nn::initialize(p, Philox::at(5, fnv1a(p.name().c_str())));
      }
      Tensor ids = some_ids(2, 6, 1, device), targets = some_ids(2, 6, 4, device);
      targets.set(3, -100);
      gpt->loss(ids, targets).backward();
      auto loss_at = [&](const Tensor& p, int64_t i, double value) {
        p.detach().set(i, value);
        NoGrad guard;
        return gpt->loss(ids, targets).item();
      };
      for (const auto& [name, p] : gpt->named_parameters()) {
        Philox random = Philox::at(11, fnv1a(name.c_str()));
        for (uint64_t k = 0; k < 4; ++k) {
          int64_t i = int64_t(random.word(k) % uint64_t(p.numel()));
          double x = p.at(i), e = 1e-5;
          double slope = (loss_at(p, i, x + e) - loss_at(p, i, x - e)) / (2 * e);
          loss_at(p, i, x);
          EXPECT_NEAR(p.grad().at(i), slope, 2e-8) << name << " element " << i << " on " << device;
        }
      }
    }
}

TEST(Gpt, RowsOfTheFusedMatrixAreGroupedByKeyValueHead) {
  GptConfig c = llama_style();
  c.position = PositionKind::learned;  // no rotation
  Attention a(c, 0);
  a.cast(DType::f64);
  nn::initialize(a, 3);
  Generator g(1);
  Tensor x = normal({2, 5, 16}, g, 0, 1, DType::f64);
  Tensors heads;
  for (int h = 0; h < 4; ++h) {  // 4 query heads of size 4 in 2 groups: q0 q1 k0 v0 q2 q3 k1 v1
    auto rows = [&](int block) {
      return linear(x, slice(a.qkv.weight, 0, 4 * block, 4 * block + 4));
    };
    int group = h / 2;
    Tensor q = rows(4 * group + h % 2), k = rows(4 * group + 2), v = rows(4 * group + 3);
    Tensor scores = mul(matmul(q, transpose(k, 1, 2)), 0.5);
    Tensor later =
        greater(unsqueeze(arange(5, DType::f64), 0), unsqueeze(arange(5, DType::f64), 1));
    heads.push_back(matmul(softmax(masked_fill(scores, later, -INFINITY)), v));
  }
  Tensor expected = linear(cat(heads, 2), a.out.weight), y = a(x, nullptr);
  for (int64_t i = 0; i < y.numel(); ++i) EXPECT_NEAR(y.at(i), expected.at(i), 1e-14);
}

TEST(Gpt, OnlyEarlierTokensMatter) {
  for (const GptConfig& config : both_styles()) {
    auto gpt = make(config);
    NoGrad guard;
    Tensor ids = some_ids(1, 8, 0);
    std::vector<double> before = (*gpt)(ids).to_vector();
    ids.set(5, 10 - ids.at(5));
    std::vector<double> after = (*gpt)(ids).to_vector();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] == after[i], i < 5 * 11) << i;
  }
}

// ---- dropout and recomputation

struct Outcome {
  double loss;
  std::vector<std::vector<double>> gradients;
  Generator::State state;
};

Outcome run_once(Gpt& gpt, bool recompute, uint64_t seed = 5) {
  gpt.recompute_blocks = recompute;
  gpt.zero_grad();
  Generator g(seed);
  Tensor loss = gpt.loss(some_ids(2, 6, 1), some_ids(2, 6, 4), &g);
  loss.backward();
  Outcome run{loss.item(), {}, g.state()};
  for (const nn::Parameter& p : gpt.parameters()) run.gradients.push_back(p.grad().to_vector());
  return run;
}

TEST(Gpt, R6_RecomputedBlocksGiveTheSameBits) {
  for (const GptConfig& config : both_styles(0.3))
    for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      auto gpt = make(config, dtype);
      Outcome plain = run_once(*gpt, false), again = run_once(*gpt, true);
      EXPECT_EQ(plain.loss, again.loss);
      EXPECT_EQ(plain.gradients, again.gradients);
      EXPECT_EQ(plain.state, again.state);
    }
}

TEST(Gpt, R7_RecomputedBlocksRunLeafHooksOnce) {
  auto gpt = make(gpt2_style(0.3));
  std::map<std::string, int> calls;
  for (const nn::Parameter& p : gpt->parameters())
    p.register_leaf_hook([&](const Tensor& leaf) { ++calls[leaf.name()]; });
  run_once(*gpt, true);
  EXPECT_EQ(calls.size(), gpt->parameters().size());
  for (const auto& [name, count] : calls) EXPECT_EQ(count, 1) << name;
}

TEST(Gpt, R5_EveryForwardHasItsOwnMasksAndASeedRepeatsThem) {
  auto gpt = make(gpt2_style(0.3));
  Generator g(5);
  Tensor ids = some_ids(2, 6, 1);
  NoGrad guard;
  std::vector<double> first = (*gpt)(ids, &g).to_vector();
  EXPECT_NE((*gpt)(ids, &g).to_vector(), first);
  Generator same(5);
  EXPECT_EQ((*gpt)(ids, &same).to_vector(), first);
}

// All weights 0 but the last biases of the two blocks, 1 and 100. With p = ½ and masks m₀, m₁, a row that
// enters the last norm is 2 m₀ + 200 m₁: four values occur if the masks differ, two if they are the same.
TEST(Gpt, R5_BlocksDrawDifferentMasks) {
  auto gpt = make(gpt2_style(0.5));
  for (const nn::Parameter& p : gpt->parameters()) fill_(p.detach(), 0);
  fill_(gpt->blocks[0].mlp.down.bias.detach(), 1);
  fill_(gpt->blocks[1].mlp.down.bias.detach(), 100);
  fill_(gpt->norm.weight.detach(), 1);
  Generator g(5);
  Tensor h = gpt->hidden(some_ids(1, 8, 0), &g);
  std::set<double> values;
  for (int64_t i = 0; i < 12; ++i) values.insert(h.at(i));
  EXPECT_EQ(values.size(), 4u);
  EXPECT_EQ(g.state().streams, 1u);
}

TEST(Gpt, R3_EvaluationDrawsNothing) {
  auto gpt = make(gpt2_style(0.3));
  Generator g(5);
  EXPECT_THROW((*gpt)(some_ids(2, 6, 1)), Error);  // training with dropout needs a generator
  gpt->eval();
  EXPECT_EQ((*gpt)(some_ids(2, 6, 1), &g).to_vector(), (*gpt)(some_ids(2, 6, 1)).to_vector());
  EXPECT_EQ(g.state(), Generator(5).state());
}

// ---- the cache

TEST(Gpt, S16_ReadingWithACacheIsTheFullPass) {
  for (const GptConfig& config : both_styles())
    for (Device device : test_devices())
      for (DType dtype : {DType::f64, DType::f32}) {
        auto gpt = make(config, dtype, device);
        NoGrad guard;
        Tensor ids = some_ids(3, 8, 2, device), full = (*gpt)(ids);
        KvCache cache(config, 3, 8, dtype, device);
        double bound = dtype == DType::f64 ? 1e-12 : 1e-5;
        int64_t ends[] = {3, 4, 5, 7, 8};  // a prompt of three tokens, then one or two at a time
        for (int64_t begin = 0; int64_t end : ends) {
          Tensor next = gpt->next_logits(slice(ids, 1, begin, end), cache);
          EXPECT_EQ(cache.length(), end);
          Tensor expected = select(full, 1, end - 1);
          for (int64_t i = 0; i < next.numel(); ++i) EXPECT_NEAR(next.at(i), expected.at(i), bound);
          begin = end;
        }
        cache.truncate(4);
        Tensor again = gpt->next_logits(slice(ids, 1, 4, 5), cache), expected = select(full, 1, 4);
        for (int64_t i = 0; i < again.numel(); ++i) EXPECT_NEAR(again.at(i), expected.at(i), bound);
      }
}

TEST(Gpt, CacheErrors) {
  auto gpt = make(llama_style());
  KvCache cache(gpt->config, 2, 4, DType::f64);
  EXPECT_THROW(gpt->next_logits(some_ids(2, 5, 0), cache), Error);       // no room
  EXPECT_THROW(gpt->hidden(some_ids(2, 3, 0), nullptr, &cache), Error);  // recorded
  EXPECT_THROW(cache.truncate(1), Error);
  EXPECT_EQ(cache.length(), 0);
}

// ---- errors

TEST(Gpt, WrongInputSaysWhatWasExpected) {
  auto gpt = make(gpt2_style());
  auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(message([&] { (*gpt)(some_ids(1, 9, 0)); }).find("9 tokens is longer than the 8"),
            std::string::npos);
  EXPECT_NE(message([&] { gpt->loss(some_ids(1, 4, 0), some_ids(1, 5, 0)); }).find("(1, 5)"),
            std::string::npos);
  EXPECT_NE(message([&] { (*gpt)(full({1, 2}, 11, DType::i32)); }).find("11"), std::string::npos);
  EXPECT_THROW((*gpt)(tensor({1, 2}, {2}, DType::i32)), Error);
}

TEST(GptConfig, NumbersThatDoNotFitAreErrors) {
  auto expect_error = [](auto change) {
    GptConfig c = llama_style();
    change(c);
    EXPECT_THROW(Gpt{c}, Error);
  };
  expect_error([](GptConfig& c) { c.heads = 3; });
  expect_error([](GptConfig& c) { c.kv_heads = 3; });
  expect_error([](GptConfig& c) { c.width = 12; });  // heads of size 3 have no pairs to rotate
  expect_error([](GptConfig& c) { c.layers = 0; });
  expect_error([](GptConfig& c) { c.dropout = 1.5; });
  expect_error([](GptConfig& c) { c.epsilon = 0; });
  EXPECT_THROW(GptConfig::preset("gpt3"), Error);
  for (const std::string& name : GptConfig::preset_names()) GptConfig::preset(name).check_valid();
}

// ---- training

TEST(Gpt, LearnsABatchByHeart) {
  for (const GptConfig& config : both_styles())
    for (Device device : test_devices())
      for (DType dtype : {DType::f32, DType::bf16}) {
        auto gpt = make(config, dtype, device);
        optim::Adam adam(*gpt, {.beta2 = 0.99, .weight_decay = 0});
        Tensor ids = some_ids(4, 8, 1, device), targets = some_ids(4, 8, 4, device);
        double loss = 0;
        for (int step = 0; step < 150; ++step) {
          adam.zero_grad();
          Tensor l = gpt->loss(ids, targets);
          l.backward();
          ASSERT_TRUE(adam.step(1e-2, {.max_norm = 1}).applied());
          loss = l.item();
        }
        EXPECT_LT(loss, 0.1) << dtype << " on " << device;
      }
}

TEST(Gpt, GradientsAddUpInTheArena) {
  auto gpt = make(gpt2_style(), DType::f64), twin = make(gpt2_style(), DType::f64);
  optim::Adam adam(*gpt);
  for (int i = 0; i < 2; ++i)
    for (Gpt* g : {gpt.get(), twin.get()})
      g->loss(some_ids(2, 6, 1 + i), some_ids(2, 6, 4 + i)).backward();
  std::vector<nn::Parameter> a = gpt->parameters(), b = twin->parameters();
  for (size_t k = 0; k < a.size(); ++k)
    for (int64_t i = 0; i < a[k].numel(); ++i)
      ASSERT_NEAR(a[k].grad().at(i), b[k].grad().at(i), 1e-14) << a[k].name();
}

}  // namespace
}  // namespace gradus
