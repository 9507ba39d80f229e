#include "nn/module.h"

#include <gtest/gtest.h>

#include "autograd/node.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/summary.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus::nn {
namespace {

struct Layer final : Module {
  Linear up{3, 4}, down{4, 3, false};
  Dropout drop{0.5};
  void fields(Fields& f) override { f("up", up)("down", down)("drop", drop); }
};

struct Model final : Module {
  Embedding table{5, 3};
  std::vector<Layer> layers;
  Parameter head = table.weight;  // tied
  Model() { layers.resize(2); }
  void fields(Fields& f) override { f("table", table)("layers", layers)("head", head); }
};

std::vector<std::string> names(Module& m) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : m.named_parameters()) all.push_back(name);
  return all;
}

TEST(Module, NamesFollowTheFieldsAndTiedParametersCountOnce) {
  Model m;
  EXPECT_EQ(names(m),
            (std::vector<std::string>{"table.weight", "layers.0.up.weight", "layers.0.up.bias",
                                      "layers.0.down.weight", "layers.1.up.weight",
                                      "layers.1.up.bias", "layers.1.down.weight"}));
}

TEST(Module, InitializeNamesAndFills) {
  Model m;
  initialize(m, 3);
  EXPECT_EQ(m.layers[1].up.weight.name(), "layers.1.up.weight");
  EXPECT_NE(m.layers[0].up.weight.to_vector(), m.layers[1].up.weight.to_vector());
  EXPECT_EQ(m.head.to_vector(), m.table.weight.to_vector());
}

TEST(Module, ErrorsNameTheParameter) {
  Model m;
  initialize(m, 3);
  Tensor x = ones({2, 3}).requires_grad_();
  Tensor y = sum(m.layers[0].up(x));
  m.layers[0].up.weight.detach().will_write("a test");
  try {
    y.backward();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("layers.0.up.weight (4, 3) f32"), std::string::npos)
        << e.what();
  }
}

TEST(Module, CastAndToKeepIdentityAndValues) {
  for (Device device : test_devices()) {
    Model m;
    initialize(m, 3);
    std::vector<double> before = m.table.weight.to_vector();
    Tensor outside = m.table.weight;  // another handle
    m.cast(DType::f64);
    m.to(device);
    EXPECT_EQ(outside.dtype(), DType::f64);
    EXPECT_EQ(outside.device(), device);
    EXPECT_TRUE(m.head.is_same(outside));
    EXPECT_TRUE(outside.requires_grad());
    EXPECT_EQ(outside.name(), "table.weight");
    EXPECT_EQ(m.head.to_vector(), before);
  }
}

TEST(Module, CastAfterABackwardForgetsTheGradientAndTrainsOn) {
  Linear layer(2, 1);
  initialize(layer, 1);
  sum(layer(ones({3, 2}))).backward();
  EXPECT_EQ(layer.weight.grad().to_vector(), (std::vector<double>{3, 3}));
  layer.cast(DType::f64);
  EXPECT_FALSE(layer.weight.grad());
  sum(layer(ones({3, 2}, DType::f64))).backward();
  EXPECT_EQ(layer.weight.grad().dtype(), DType::f64);
  EXPECT_EQ(layer.weight.grad().to_vector(), (std::vector<double>{3, 3}));
}

TEST(Module, CastBetweenForwardAndBackwardIsAnError) {
  Linear layer(2, 1);
  initialize(layer, 1);
  Tensor y = sum(layer(ones({3, 2}).requires_grad_()));
  layer.cast(DType::f64);
  EXPECT_THROW(y.backward(), Error);
}

TEST(Module, CastToIntegersIsAnError) {
  Linear layer(2, 1);
  EXPECT_THROW(layer.cast(DType::i32), Error);
}

TEST(Module, ZeroGrad) {
  Linear layer(2, 1);
  initialize(layer, 1);
  sum(layer(ones({3, 2}))).backward();
  layer.zero_grad();
  EXPECT_FALSE(layer.weight.grad());
  EXPECT_FALSE(layer.bias.grad());
}

TEST(Module, TrainingModeReachesEveryLayer) {
  Model m;
  {
    Evaluating guard(m);
    EXPECT_FALSE(m.training || m.layers[1].training || m.layers[1].drop.training);
  }
  EXPECT_TRUE(m.training && m.layers[1].training && m.layers[1].drop.training);
}

TEST(Linear, IsXWTransposedPlusB) {
  Linear layer(2, 3);
  copy_(layer.weight.detach(), tensor({1, 2, 3, 4, 5, 6}, {3, 2}));
  copy_(layer.bias.detach(), tensor({0.5, 0, -1}, {3}));
  EXPECT_EQ(layer(tensor({1, -1}, {1, 2})).to_vector(), (std::vector<double>{-0.5, -1, -2}));
  Linear bare(2, 3, false);
  EXPECT_FALSE(bare.bias);
  EXPECT_EQ(names(bare), (std::vector<std::string>{"weight"}));
}

TEST(Dropout, R3_EvaluationAndPZeroReturnTheInputAndDrawNothing) {
  Generator g(1);
  Tensor x = ones({100});
  Dropout half(0.5), none(0);
  half.eval();
  EXPECT_TRUE(half(x, &g).is_same(x));
  EXPECT_TRUE(none(x, &g).is_same(x));
  EXPECT_TRUE(none(x, nullptr).is_same(x));
  EXPECT_EQ(g.state(), Generator(1).state());
}

TEST(Dropout, TrainingWithoutAGeneratorIsAnError) {
  Dropout half(0.5);
  EXPECT_THROW(half(ones({4}), nullptr), Error);
  EXPECT_THROW(Dropout(1.5), Error);
  EXPECT_THROW(Dropout(std::numeric_limits<double>::quiet_NaN()), Error);
}

TEST(Summary, CountsEachParameterOnce) {
  Model m;
  initialize(m, 1);
  m.layers[0].up.bias.requires_grad_(false);
  m.cast(DType::bf16);
  ParameterCount count = count_parameters(m);
  EXPECT_EQ(count.elements, 15 + 2 * (12 + 4 + 12));
  EXPECT_EQ(count.bytes, 2 * count.elements);
  EXPECT_EQ(count.trainable_elements, count.elements - 4);
  std::string table = summary(m);
  EXPECT_NE(table.find("layers.0.up.weight    (4, 3)  bf16               12\n"), std::string::npos)
      << table;
  EXPECT_NE(table.find("layers.0.up.bias      (4,)    bf16 frozen         4\n"), std::string::npos)
      << table;
  EXPECT_NE(table.find("67 of them are trained, 134 bytes"), std::string::npos) << table;
}

}  // namespace
}  // namespace gradus::nn
