#include "optim/flat_buffer.h"

#include <gtest/gtest.h>

#include "core/allocator.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

struct Net final : nn::Module {
  nn::Linear up{3, 5};
  nn::LayerNorm norm{5};
  nn::Linear down{5, 2, false};
  Tensor operator()(const Tensor& x) const { return down(norm(up(x))); }
  void fields(nn::Fields& f) override { f("up", up)("norm", norm)("down", down); }
};

TEST(FlatBuffer, DecayedParametersComeFirstAndAllKeepTheirValues) {
  for (Device device : test_devices()) {
    Net net;
    nn::initialize(net, 1);
    net.to(device);
    std::vector<double> before = net.down.weight.to_vector();
    FlatBuffer flat(default_groups(net));
    std::vector<std::string> names;
    std::vector<int64_t> offsets;
    for (const FlatBuffer::Slot& slot : flat.slots()) {
      names.push_back(slot.name());
      offsets.push_back(slot.offset);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"up.weight", "down.weight", "up.bias", "norm.weight",
                                               "norm.bias"}));
    EXPECT_EQ(offsets, (std::vector<int64_t>{0, 64, 128, 192, 256}));
    EXPECT_EQ(flat.parameters().numel(), 320);
    EXPECT_EQ(flat.padding(), 320 - (15 + 10 + 15));
    EXPECT_EQ(flat.range(0).end, 128);
    EXPECT_EQ(flat.range(1).begin, 128);
    EXPECT_EQ(net.down.weight.to_vector(), before);
    EXPECT_EQ(flat.parameters().at(64 + 3), before[3]);
    fill_(flat.parameters(), 7);
    EXPECT_EQ(net.down.weight.to_vector(), std::vector<double>(10, 7));
  }
}

TEST(FlatBuffer, GradientsOfSixteenBitParametersAreSummedInF32) {
  Tensor x = tensor({1, 1}, {2}, DType::bf16).requires_grad_();
  FlatBuffer flat(default_groups({x}));
  for (int i = 0; i < 3; ++i) sum(mul(x, tensor({1, 256}, {2}, DType::bf16))).backward();
  sum(mul(x, tensor({0.0078125, 1}, {2}, DType::bf16))).backward();
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{3.0078125, 769}));  // bf16 has 8 bits
}

TEST(FlatBuffer, ZeroGradFillsNothingAndFinishZeroesWhatWasNotReached) {
  Tensor x = ones({2}).requires_grad_(), y = ones({3}).requires_grad_();
  FlatBuffer flat(default_groups({x, y}));
  sum(x + 1).backward(), sum(mul(y, 5)).backward();
  flat.zero_grad();
  EXPECT_FALSE(x.grad() || y.grad());
  sum(mul(x, 3)).backward();
  flat.finish_gradients();
  EXPECT_EQ(flat.view(flat.gradients(), flat.slots()[0]).to_vector(), (std::vector<double>{3, 3}));
  EXPECT_EQ(flat.view(flat.gradients(), flat.slots()[1]).to_vector(),
            (std::vector<double>{0, 0, 0}));
}

TEST(FlatBuffer, GradientsThatWereThereMoveIn) {
  Tensor x = ones({2}).requires_grad_();
  sum(mul(x, 3)).backward();
  FlatBuffer flat(default_groups({x}));
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{3, 3}));
  sum(mul(x, 2)).backward();
  EXPECT_EQ(flat.gradients().at(1), 5);
}

TEST(FlatBuffer, ASecondOptimizerTakesOverAndTheFirstSaysSo) {
  Tensor x = ones({2, 2}).requires_grad_();
  Adam first(default_groups({x})), second(default_groups({x}));
  sum(x).backward();
  EXPECT_TRUE(second.step(0.1).applied());
  EXPECT_THROW(first.step(0.1), Error);
}

TEST(FlatBuffer, WrongParametersAreErrors) {
  Tensor x = ones({2}).requires_grad_(), wide = ones({2}, DType::f64).requires_grad_();
  EXPECT_THROW(FlatBuffer({}), Error);
  EXPECT_THROW(FlatBuffer(default_groups({x, x})), Error);
  EXPECT_THROW(FlatBuffer(default_groups({x, wide})), Error);
  ParameterGroup group{.name = "frozen"};
  group.parameters.emplace_back(ones({2}));
  EXPECT_THROW(FlatBuffer({group}), Error);
}

TEST(ParameterGroups, NeedInitialisedModules) {
  Net net;
  EXPECT_THROW(default_groups(net), Error);
}

TEST(ParameterGroups, FrozenParametersAreLeftOut) {
  Net net;
  nn::initialize(net, 1);
  net.up.weight.requires_grad_(false);
  std::vector<ParameterGroup> groups = default_groups(net);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].parameters.size(), 1u);
}

TEST(ParameterGroups, ArePrintable) {
  Net net;
  nn::initialize(net, 1);
  std::vector<ParameterGroup> groups = default_groups(net);
  groups[0].max_lr = 0.25;
  std::ostringstream out;
  out << groups;
  EXPECT_EQ(
      out.str(),
      "decayed: learning rate × 1, weight decay × 1, learning rate at most 0.25; 2 parameters, "
      "25 elements\n"
      "  up.weight (5, 3) f32\n"
      "  down.weight (2, 5) f32\n"
      "not decayed: learning rate × 1, weight decay × 0; 3 parameters, 15 elements\n"
      "  up.bias (5,) f32\n"
      "  norm.weight (5,) f32\n"
      "  norm.bias (5,) f32\n");
}

TEST(Optimizer, GroupsScaleRateAndDecay) {
  Tensor x = ones({1}).requires_grad_(), y = ones({1}).requires_grad_();
  ParameterGroup fast{.name = "fast", .lr_scale = 2},
      still{.name = "still", .weight_decay_scale = 0};
  fast.parameters.emplace_back(x);
  still.parameters.emplace_back(y);
  Adam adam({fast, still}, {.weight_decay = 0.5});
  sum(mul(x, 0) + mul(y, 0)).backward();
  adam.step(0.25);
  EXPECT_EQ(x.item(), 1 - 2 * 0.25 * 0.5);
  EXPECT_EQ(y.item(), 1);
}

TEST(Optimizer, GroupsBoundTheRate) {
  for (Device device : test_devices()) {
    Tensor x = full({1}, 1, DType::f64, device).requires_grad_();
    Tensor y = full({1}, 1, DType::f64, device).requires_grad_();
    ParameterGroup slow{.name = "slow", .max_lr = 0.125}, fast{.name = "fast", .min_lr = 0.5};
    slow.parameters.emplace_back(x), fast.parameters.emplace_back(y);
    Adam adam({slow, fast}, {.weight_decay = 0.5});
    sum(mul(x, 0) + mul(y, 0)).backward();
    adam.step(0.25);
    EXPECT_EQ(x.item(), 1 - 0.125 * 0.5);
    EXPECT_EQ(y.item(), 1 - 0.5 * 0.5);
  }
  Tensor z = ones({1}).requires_grad_();
  ParameterGroup none{.name = "none", .min_lr = 2, .max_lr = 1};
  none.parameters.emplace_back(z);
  EXPECT_THROW(Adam({none}), Error);
}

TEST(Optimizer, StateRestoresBitForBit) {
  auto train = [](Adam& adam, const Tensor& x, int from, int to) {
    for (int t = from; t < to; ++t) {
      adam.zero_grad();
      sum(mul(mul(x, x), 0.1 * t + 1)).backward();
      adam.step(0.01);
    }
  };
  Tensor x = tensor({1, -2, 3}, {3}, DType::bf16).requires_grad_();
  Tensor y = tensor({0, 0, 0}, {3}, DType::bf16).requires_grad_();
  Adam a(default_groups({x})), b(default_groups({y}));
  train(a, x, 0, 5);
  copy_(y.detach(), x.detach());
  std::vector<NamedState> from = a.state(), to = b.state();
  for (size_t i = 0; i < from.size(); ++i) to[i].value.write(from[i].value.read());
  b.restore_steps(a.steps());
  train(a, x, 5, 10), train(b, y, 5, 10);
  EXPECT_EQ(x.to_vector(), y.to_vector());
  for (size_t i = 0; i < from.size(); ++i)
    EXPECT_EQ(from[i].value.read().to_vector(), to[i].value.read().to_vector()) << from[i].name;
}

TEST(Optimizer, ReloadedMastersFollowLoadedParameters) {
  Tensor x = ones({1}, DType::bf16).requires_grad_();
  Adam adam(default_groups({x}), {.weight_decay = 0});
  copy_(x.detach(), tensor({8}, {1}, DType::bf16));
  adam.flat().reload_masters();
  adam.step(0.1);
  EXPECT_EQ(x.item(), 8);
}

TEST(Optimizer, AGraphAcrossAStepIsAnError) {
  Tensor x = ones({2}).requires_grad_();
  Adam adam(default_groups({x}));
  Tensor y = sum(mul(x, x));
  y.backward({}, {.retain_graph = true});
  adam.step(0.1);
  EXPECT_THROW(y.backward(), Error);
}

TEST(FlatBuffer, APartOfAnArenaIsAView) {
  Tensor arena = tensor({0, 1, 2, 3, 4}, {5}), part = part_of(arena, {1, 4});
  EXPECT_EQ(part.to_vector(), (std::vector<double>{1, 2, 3}));
  part.set(0, 9);
  EXPECT_EQ(arena.at(1), 9);
}

TEST(Optimizer, SteadyStepsAllocateNothingNew) {
  Tensor x = ones({1000, 100}).requires_grad_();
  Adam adam(default_groups({x}));
  auto step = [&] {
    adam.zero_grad();
    sum(mul(x, x)).backward();
    adam.step(0.1);
  };
  for (int i = 0; i < 3; ++i) step();
  int64_t live = memory_stats(kCpu).live;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(memory_stats(kCpu).live, live);
}

}  // namespace
}  // namespace gradus::optim
