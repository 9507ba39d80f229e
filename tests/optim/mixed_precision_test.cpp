#include "optim/mixed_precision.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/gpt.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

Tensor half_leaf(const std::vector<double>& values, Device device = kCpu) {
  return tensor(values, {int64_t(values.size())}, DType::f16, device).requires_grad_();
}

/// A loss in f32 whose gradient is g: what a model does, from f16 parameters.
Tensor loss_with_gradient(const Tensor& x, const std::vector<double>& g) {
  return sum(cast(mul(x, tensor(g, x.shape(), x.dtype(), x.device())), DType::f32));
}

// 1e-7 · 2⁻⁴ is below half of the smallest f16: unscaled it is rounded to 0.
TEST(MixedPrecision, ScalingKeepsGradientsThatF16WouldLose) {
  for (Device device : test_devices()) {
    Tensor lost = half_leaf({1, 1}, device), kept = half_leaf({1, 1}, device);
    auto loss = [](const Tensor& x) { return sum(cast(x * 0x1p-4, DType::f32)) * 0x1p-23; };
    Sgd plain(default_groups({lost})), scaled(default_groups({kept}));
    loss(lost).backward();
    EXPECT_EQ(plain.step(0).grad_norm(), 0);  // dL/dx = 2⁻²⁷, and 2⁻²⁴ is the smallest f16
    MixedPrecision precision(scaled, GradScalerOptions{.initial = 0x1p16});
    loss(kept).backward(precision.seed());
    EXPECT_EQ(precision.step(0).grad_norm(), 0x1p-27 * std::sqrt(2.0));
  }
}

// O7: norm and clipping see unscaled gradients. A power of two changes no digit of the update.
TEST(MixedPrecision, O7_TheScaleDoesNotChangeTheUpdate) {
  for (Device device : test_devices()) {
    std::vector<std::vector<double>> values;
    for (double scale : {1.0, 1024.0}) {
      Tensor x = half_leaf({1, -2, 0.5}, device);
      Adam adam(default_groups({x}), {.weight_decay = 0.1});
      MixedPrecision precision(adam, GradScalerOptions::constant(scale));
      for (int k = 0; k < 5; ++k) {
        adam.zero_grad();
        loss_with_gradient(x, {3, 4, 12}).backward(precision.seed());
        const StepResult r = precision.step(0.01, {.max_norm = 6.5});
        EXPECT_EQ(r.grad_norm(), 13);
        EXPECT_EQ(r.loss_scale(), scale);
      }
      values.push_back(adam.state().back().value.read().to_vector());
    }
    EXPECT_EQ(values[0], values[1]);
  }
}

// O4: an overflow at the third step is skipped and leaves no trace; the scale backs off.
TEST(MixedPrecision, O4_AnOverflowIsSkippedWithoutATrace) {
  for (Device device : test_devices()) {
    Tensor x = half_leaf({1, -2}, device), y = half_leaf({1, -2}, device);
    x.set_name("x");
    Adam adam(default_groups({x})), twin(default_groups({y}));
    const GradScalerOptions options{.initial = 1024, .hysteresis = 1};
    MixedPrecision precision(adam, options), undisturbed(twin, options);
    for (int k = 1; k <= 6; ++k) {
      adam.zero_grad(), twin.zero_grad();
      loss_with_gradient(x, {0.5, k == 3 ? 60000 : 0.25}).backward(precision.seed());
      const StepResult r = precision.step(0.01, {.max_norm = 1});
      EXPECT_EQ(r.applied(), k != 3);
      EXPECT_EQ(r.loss_scale(), k <= 3 ? 1024 : 512);
      if (k == 3) {
        EXPECT_EQ(r.non_finite(), "x");
        EXPECT_NE(r.why_skipped().find("becomes 512; no action"), std::string::npos);
        EXPECT_FALSE(r.is_hopeless());
        continue;
      }
      loss_with_gradient(y, {0.5, 0.25}).backward(undisturbed.seed());
      undisturbed.step(0.01, {.max_norm = 1});
    }
    EXPECT_EQ(adam.steps(), 5);
    const auto a = adam.state(), b = twin.state();
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_EQ(a[i].value.read().to_vector(), b[i].value.read().to_vector()) << a[i].name;
    EXPECT_EQ(precision.state(), (GradScaler::State{512, 3, 0}));
  }
}

// O5: at the floor the message names the layer and says what to do.
TEST(MixedPrecision, O5_AtTheFloorAnOverflowIsHopelessAndSaysSo) {
  Tensor fine = half_leaf({1}), bad = half_leaf({1});
  fine.set_name("first"), bad.set_name("second");
  Sgd sgd(default_groups({fine, bad}));
  MixedPrecision precision(sgd, GradScalerOptions{.initial = 2, .hysteresis = 1});
  std::vector<StepResult> results;
  for (int k = 0; k < 2; ++k) {
    sgd.zero_grad();
    add(loss_with_gradient(fine, {1}), loss_with_gradient(bad, {INFINITY}))
        .backward(precision.seed());
    results.push_back(precision.step(0.1));
  }
  EXPECT_FALSE(results[0].is_hopeless());
  EXPECT_TRUE(results[1].is_hopeless());
  const std::string why = results[1].why_skipped();
  for (const char* words : {"gradient of second", "minimum", "lower the learning rate"})
    EXPECT_NE(why.find(words), std::string::npos) << why;
  EXPECT_EQ(precision.state().scale, 1);
}

TEST(MixedPrecision, StateRestoresTheScale) {
  Tensor x = half_leaf({1}), y = half_leaf({1});
  Sgd a(default_groups({x})), b(default_groups({y}));
  MixedPrecision from(a, GradScalerOptions{}), to(b, GradScalerOptions{});
  from.restore({64, 5, 1});
  to.restore(from.state());
  EXPECT_EQ(to.state(), (GradScaler::State{64, 5, 1}));
  EXPECT_EQ(to.seed().item(), 64);
}

// bf16 and f32 runs touch no scale.
TEST(MixedPrecision, OtherTypesAreNotScaled) {
  for (DType dtype : {DType::bf16, DType::f32}) {
    Tensor x = tensor({1, 2}, {2}, dtype).requires_grad_();
    Sgd sgd(default_groups({x}));
    EXPECT_THROW(MixedPrecision(sgd, GradScalerOptions{}), Error);
    MixedPrecision precision(sgd);
    EXPECT_FALSE(precision.is_scaled() || precision.seed());
    EXPECT_THROW(precision.state(), Error);
    loss_with_gradient(x, {3, 4}).backward(precision.seed());
    const StepResult r = precision.step(0.5);
    EXPECT_EQ(r.grad_norm(), 5);
    EXPECT_EQ(r.loss_scale(), 1);
    EXPECT_EQ(x.to_vector(), (std::vector<double>{-0.5, 0}));
  }
  Tensor x = half_leaf({1});
  Sgd sgd(default_groups({x}));
  EXPECT_THROW(MixedPrecision{sgd}, Error);
}

double loss_after_training(DType dtype, Device device) {
  GptConfig config;
  config.layers = 1, config.width = 16, config.heads = 2, config.ffn = 32, config.vocab = 11;
  config.max_length = 8;
  Gpt gpt(config);
  nn::initialize(gpt, 1);
  gpt.cast(dtype), gpt.to(device);
  Adam adam(gpt, {.beta2 = 0.99, .weight_decay = 0});
  std::optional<GradScalerOptions> scaling;
  if (dtype == DType::f16) scaling = GradScalerOptions{.interval = 20};
  MixedPrecision precision(adam, scaling);
  std::vector<double> ids, targets;  // each row of ids comes twice, with other targets
  for (int i = 0; i < 64; ++i)
    ids.push_back(i % 32 * (i % 32) % 11), targets.push_back((i % 32 + i / 32) % 11);
  const Tensor in = tensor(ids, {8, 8}, DType::i32, device);
  const Tensor out = tensor(targets, {8, 8}, DType::i32, device);
  while (adam.steps() < 100) {
    adam.zero_grad();
    gpt.loss(in, out).backward(precision.seed());
    precision.step(5e-3, {.max_norm = 1});
  }
  return gpt.loss(in, out).item();
}

// Two targets for each context: no model is better than ln 2 = 0.69.
// The first scale, 2³², overflows; some twenty steps are skipped on the way down to one that does not.
TEST(MixedPrecision, ATinyGptInF16ReachesTheLossOfF32) {
  for (Device device : test_devices()) {
    const double f32 = loss_after_training(DType::f32, device);
    EXPECT_LT(f32, 0.8);
    EXPECT_NEAR(loss_after_training(DType::f16, device) / f32, 1, 0.01) << device;
    EXPECT_NEAR(loss_after_training(DType::bf16, device) / f32, 1, 0.02) << device;
  }
}

}  // namespace
}  // namespace gradus::optim
