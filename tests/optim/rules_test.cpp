// The update rules against three steps computed by hand, and against the rule written out for one
// element. θ₀ = (1, −2), gradients (0.5, 1), (−1, 0.25), (2, −0.5), η = 0.1, in f64.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/fused_update.h"
#include "optim/sgd.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

/// One group in which everything is decayed.
std::vector<ParameterGroup> one_group(const Tensors& leaves) {
  ParameterGroup g{.name = "all"};
  for (const Tensor& t : leaves) g.parameters.emplace_back(t);
  return {g};
}

Tensor leaf(const std::vector<double>& values, DType dtype = DType::f64, Device device = kCpu) {
  return tensor(values, {int64_t(values.size())}, dtype, device).requires_grad_();
}

/// Adds `g` to the gradient of x, by a backward.
void give_gradient(const Tensor& x, const std::vector<double>& g) {
  sum(mul(x, tensor(g, x.shape(), x.dtype(), x.device()))).backward();
}

const std::vector<std::vector<double>> kGradients = {{0.5, 1}, {-1, 0.25}, {2, -0.5}};

template <class Make>
void expect_oracle(const char* rule, Make make, const std::vector<std::vector<double>>& expected,
                   double tolerance) {
  for (Device device : test_devices()) {
    Tensor x = leaf({1, -2}, DType::f64, device);
    auto optimizer = make(one_group({x}));
    for (size_t step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      give_gradient(x, kGradients[step]);
      EXPECT_TRUE(optimizer->step(0.1).applied());
      for (int i = 0; i < 2; ++i)
        EXPECT_NEAR(x.at(i), expected[step][size_t(i)], tolerance) << rule << ", step " << step + 1;
    }
  }
}

void expect_sgd(const char* rule, SgdOptions o, const std::vector<std::vector<double>>& expected) {
  auto make = [o](auto groups) { return std::make_unique<Sgd>(std::move(groups), o); };
  expect_oracle(rule, make, expected, 1e-12);  // the values below are exact
}

TEST(Sgd, ThreeStepsByHand) {
  expect_sgd("plain", {}, {{0.95, -2.1}, {1.05, -2.125}, {0.85, -2.075}});
  expect_sgd("λ", {.weight_decay = 0.1}, {{0.94, -2.08}, {1.0306, -2.0842}, {0.820294, -2.013358}});
  expect_sgd("μ", {.momentum = 0.9}, {{0.95, -2.1}, {1.005, -2.215}, {0.8545, -2.2685}});
  expect_sgd("μ, λ", {.momentum = 0.9, .weight_decay = 0.1},
             {{0.94, -2.08}, {0.9766, -2.1562}, {0.799774, -2.153218}});
  expect_sgd("μ, d", {.momentum = 0.9, .dampening = 0.5},
             {{0.95, -2.1}, {0.955, -2.2025}, {0.8595, -2.26975}});
  expect_sgd("μ, d, λ", {.momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
             {{0.94, -2.08}, {0.9313, -2.1541}, {0.8188135, -2.1850195}});
  expect_sgd("Nesterov", {.momentum = 0.9, .nesterov = true},
             {{0.905, -2.19}, {1.0545, -2.3185}, {0.71905, -2.31665}});
  expect_sgd("Nesterov, λ", {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
             {{0.886, -2.152}, {1.010566, -2.223412}, {0.641448646, -2.147305972}});
}

TEST(Sgd, WrongOptionsAreErrors) {
  EXPECT_THROW(Sgd(one_group({leaf({1})}), {.nesterov = true}), Error);
  EXPECT_THROW(Sgd(one_group({leaf({1})}), {.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
               Error);
  EXPECT_THROW(Sgd(one_group({leaf({1})}), {.momentum = 1}), Error);
}

/// Adam as its formulas stand, element by element in double.
std::vector<std::vector<double>> adam_by_formula(AdamOptions o, double lr) {
  std::vector<std::vector<double>> result;
  double theta[] = {1, -2}, m[2] = {}, v[2] = {};
  for (int t = 1; t <= 3; ++t) {
    for (int i = 0; i < 2; ++i) {
      double g = kGradients[size_t(t - 1)][size_t(i)];
      if (o.decay == Decay::through_gradient) g += o.weight_decay * theta[i];
      if (o.decay == Decay::decoupled) theta[i] *= 1 - lr * o.weight_decay;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      double m_hat = m[i] / (1 - std::pow(o.beta1, t)), v_hat = v[i] / (1 - std::pow(o.beta2, t));
      theta[i] -= lr * m_hat / (std::sqrt(v_hat) + o.epsilon);
    }
    result.push_back({theta[0], theta[1]});
  }
  return result;
}

void expect_adam(const char* rule, AdamOptions o,
                 const std::vector<std::vector<double>>& expected) {
  auto make = [o](auto groups) { return std::make_unique<Adam>(std::move(groups), o); };
  expect_oracle(rule, make, expected, 6e-9);  // nine digits are given
  expect_oracle(rule, make, adam_by_formula(o, 0.1), 1e-12);
}

TEST(Adam, ThreeStepsByHand) {
  expect_adam("Adam", {.weight_decay = 0},
              {{0.900000002, -2.1}, {0.936610354, -2.18305975}, {0.894644793, -2.21291493}});
  expect_adam("Adam, λ through g", {.weight_decay = 0.1, .decay = Decay::through_gradient},
              {{0.900000002, -2.1}, {0.925263519, -2.17064004}, {0.877617261, -2.16867427}});
  expect_adam("AdamW", {.weight_decay = 0.1},
              {{0.890000002, -2.08}, {0.917710354, -2.14225975}, {0.866567689, -2.15069233}});
  expect_adam("AdamW, large ε", {.beta2 = 0.99, .epsilon = 1e-2, .weight_decay = 0.1},
              {{0.891960784, -2.0790099}, {0.919145942, -2.14031707}, {0.868436676, -2.14839933}});
  expect_adam("Adam, large ε", {.beta2 = 0.99, .epsilon = 1e-2, .weight_decay = 0},
              {{0.901960784, -2.0990099}, {0.938065549, -2.18110717}, {0.896547743, -2.2105926}});
  expect_adam("β = 0", {.beta1 = 0, .beta2 = 0, .weight_decay = 0},
              {{0.900000002, -2.1}, {1.000000001, -2.2}, {0.900000002, -2.1}});
}

TEST(Adam, MomentsAfterThreeSteps) {
  Tensor x = leaf({1, -2});
  Adam adam(one_group({x}), {.weight_decay = 0});
  for (const auto& g : kGradients) {
    adam.zero_grad();
    give_gradient(x, g);
    adam.step(0.1);
  }
  std::vector<NamedState> state = adam.state();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].name, "parameter 0.m");
  EXPECT_EQ(state[1].name, "parameter 0.v");
  const double m[] = {0.1505, 0.0535}, v[] = {0.00524850025, 0.0013104385};
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(state[0].value.read().at(i), m[i], 1e-12);
    EXPECT_NEAR(state[1].value.read().at(i), v[i], 1e-12);
  }
  EXPECT_EQ(adam.steps(), 3);
}

TEST(Adam, O8_HundredStepsInF32) {
  for (double weight_decay : {0.0, 0.1}) {
    Tensor x = leaf({1, -2}, DType::f32), y = leaf({1, -2}, DType::f64);
    Adam narrow(one_group({x}), {.weight_decay = weight_decay});
    Adam wide(one_group({y}), {.weight_decay = weight_decay});
    for (int t = 0; t < 100; ++t) {
      std::vector<double> g = {double(float(std::sin(t) + 0.3)), double(float(std::cos(2.1 * t)))};
      for (Adam* adam : {&narrow, &wide}) adam->zero_grad();
      give_gradient(x, g), give_gradient(y, g);
      for (Adam* adam : {&narrow, &wide}) adam->step(1e-3);
      for (int i = 0; i < 2; ++i)  // a step adds about three roundings of numbers below 2
        ASSERT_NEAR(x.at(i), y.at(i), 3 * (t + 1) * 0x1p-23) << t;
    }
  }
}

TEST(Adam, O9_DecayOnZeroGradientsIsAPower) {
  for (Device device : test_devices()) {
    Tensor x = leaf({1, -2, 0.3}, DType::f32, device);
    Adam adam(one_group({x}), {.weight_decay = 0.1});
    float expected[] = {1, -2, 0.3f}, factor = float(1 - 1e-2 * 0.1);
    for (int t = 0; t < 50; ++t) {
      give_gradient(x, {0, 0, 0});
      adam.step(1e-2);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(x.at(i), double(expected[i] *= factor));
    }
    for (const NamedState& s : adam.state())
      EXPECT_EQ(s.value.read().to_vector(), (std::vector<double>{0, 0, 0}));
  }
}

TEST(Adam, O10_WithoutDecayBothFormsAreTheSame) {
  Tensor x = leaf({1, -2, 1e-30}, DType::f32), y = leaf({1, -2, 1e-30}, DType::f32);
  Adam adamw(one_group({x}), {.weight_decay = 0});
  Adam adam(one_group({y}), {.weight_decay = 0, .decay = Decay::through_gradient});
  for (int t = 0; t < 20; ++t) {
    adamw.zero_grad(), adam.zero_grad();
    give_gradient(x, {std::sin(t), 0.1, 1e-20}), give_gradient(y, {std::sin(t), 0.1, 1e-20});
    adamw.step(1e-2), adam.step(1e-2);
    ASSERT_EQ(x.to_vector(), y.to_vector());
  }
}

TEST(Adam, O11_EpsilonStandsOutsideTheCorrectedRoot) {
  for (DType dtype : {DType::f32, DType::f64}) {
    Tensor x = leaf({1}, dtype);
    Adam adam(one_group({x}), {.weight_decay = 0});
    give_gradient(x, {1e-8});
    adam.step(0.1);
    EXPECT_NEAR(x.item(), 0.95, 4 * roundoff(dtype));
  }
}

TEST(Optimizers, O12_ZeroGradientWithoutDecayChangesNothing) {
  const std::vector<double> values = {1, -2, 1e-30, 0};
  for (DType dtype : kFloatingTypes) {
    Tensor x = leaf(values, dtype), y = leaf(values, dtype), z = leaf(values, dtype);
    std::vector<double> before = x.to_vector();
    Adam adam(one_group({x}), {.weight_decay = 0});
    Sgd sgd(one_group({y})), momentum(one_group({z}), {.momentum = 0.9, .nesterov = true});
    for (int t = 0; t < 3; ++t) {
      for (Optimizer* o : {(Optimizer*)&adam, (Optimizer*)&sgd, (Optimizer*)&momentum}) {
        o->zero_grad();
        EXPECT_TRUE(o->step(0.1).applied());  // no backward reached the leaf: that counts as 0
      }
      EXPECT_EQ(x.to_vector(), before);
      EXPECT_EQ(y.to_vector(), before);
      EXPECT_EQ(z.to_vector(), before);
    }
  }
}

TEST(Optimizers, O13_GradientsAreNotWritten) {
  Tensor x = leaf({3, 4, 12}, DType::f32);
  Adam adam(one_group({x}), {.weight_decay = 0.1, .decay = Decay::through_gradient});
  give_gradient(x, {3, 4, 12});
  uint32_t version = x.grad().version();
  adam.step(0.1, {.max_norm = 1});
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{3, 4, 12}));
  EXPECT_EQ(x.grad().version(), version);
}

TEST(Optimizers, O14_MastersKeepWhatBf16Loses) {
  for (Device device : test_devices()) {
    Tensor x = leaf({1}, DType::bf16, device);
    Sgd sgd(one_group({x}));
    for (int t = 0; t < 1000; ++t) {
      sgd.zero_grad();
      give_gradient(x, {1});
      sgd.step(1e-4);
    }
    std::vector<NamedState> state = sgd.state();
    ASSERT_EQ(state.size(), 1u);
    EXPECT_EQ(state[0].name, "parameter 0.master");
    // 1e-4 is no multiple of the spacing of f32 below 1: each step is off by up to 2⁻²⁵, the same way.
    EXPECT_NEAR(state[0].value.read().item(), 0.9, 1000 * 0x1p-25);
    EXPECT_EQ(x.item(), 0.8984375);
  }
}

TEST(Optimizers, F16ParametersAreTheRoundedMasters) {
  Tensor x = leaf({1, -0.3, 1e-6}, DType::f16);
  Adam adam(one_group({x}));
  give_gradient(x, {1, 2, -1});
  adam.step(1e-3);
  Tensor master = adam.state()[2].value.read();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(x.at(i), double(float(f16(float(master.at(i))))));
}

// ---- the pass over the arena against one element at a time

/// 13 tensors of odd sizes, in all about 100,000 elements: several threads, vector remainders, gaps.
Tensors many_leaves(DType dtype, Device device) {
  Generator g(5);
  Tensors leaves;
  for (int64_t n : {1, 63, 64, 65, 7, 1000, 4097, 3, 50000, 129, 33333, 2, 17})
    leaves.push_back(normal({n}, g, 0, 1, dtype, device).requires_grad_());
  return leaves;
}

struct Reference {
  std::vector<float> theta, m, v;
};

TEST(Optimizers, ArenaPassIsBitwiseTheElementwiseRule) {
  AdamOptions o{.weight_decay = 0.1};
  for (Device device : test_devices())
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Tensors leaves = many_leaves(dtype, device);
      std::vector<Reference> reference;
      for (const Tensor& x : leaves) {
        std::vector<double> values = x.to_vector();
        reference.push_back({std::vector<float>(values.begin(), values.end()),
                             std::vector<float>(values.size()), std::vector<float>(values.size())});
      }
      Adam adam(one_group(leaves), o);
      Generator random(9);
      double scale = 0.37, lr = 1e-2;
      for (int t = 1; t <= 3; ++t) {
        adam.zero_grad();
        for (size_t k = 0; k < leaves.size(); ++k) {
          Tensor g = normal(leaves[k].shape(), random, 0, 1, dtype, device);
          sum(mul(leaves[k], g)).backward();
          std::vector<double> gradient = leaves[k].grad().to_vector();
          Reference& r = reference[k];
          for (size_t i = 0; i < gradient.size(); ++i) {
            float d = float(gradient[i]) * float(scale);
            r.m[i] = fused(0.9f, r.m[i], float(1 - 0.9) * d);
            r.v[i] = fused(0.999f, r.v[i], float(1 - 0.999) * d * d);
            float root = float(1 / std::sqrt(1 - std::pow(0.999, t)));
            float step = float(lr / (1 - std::pow(0.9, t)));
            float decayed = r.theta[i] * float(1 - lr * 0.1);
            float& theta = r.theta[i];
            theta = fused(-step, r.m[i] / fused(std::sqrt(r.v[i]), root, 1e-8f), decayed);
            if (dtype == DType::bf16) theta = master_of(bf16(theta), low_of(theta, bf16(theta)));
          }
        }
        adam.update(lr, scale);
        for (size_t k = 0; k < leaves.size(); ++k) {
          std::vector<double> values = leaves[k].to_vector();
          std::vector<double> masters =
              adam.flat().master(adam.flat().slots()[k]).read().to_vector();
          for (size_t i = 0; i < values.size(); ++i) {
            float expected = reference[k].theta[i];
            ASSERT_EQ(masters[i], double(expected)) << dtype << " leaf " << k << " element " << i;
            if (dtype == DType::bf16) expected = float(bf16(expected));
            if (dtype == DType::f16) expected = float(f16(expected));
            ASSERT_EQ(values[i], double(expected)) << dtype << " leaf " << k << " element " << i;
          }
        }
      }
      double gaps = 0;  // what lies between the parameters stays 0
      for (double v : adam.flat().parameters().to_vector()) gaps += v == 0;
      EXPECT_EQ(gaps, double(adam.flat().padding()));
    }
}

}  // namespace
}  // namespace gradus::optim
