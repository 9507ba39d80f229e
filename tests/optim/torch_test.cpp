// A hundred random steps of each rule beside PyTorch's, which tests/fixtures/make_optimizers.py stored.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

using nlohmann::json;
constexpr int64_t kRows = 4, kColumns = 6;

/// The same numbers as in the script; exact in f32.
double random(int64_t k) {
  return double(int64_t(uint64_t(k) * 2654435761u >> 7) % 65536 - 32768) / 32768;
}

std::vector<ParameterGroup> one_group(const Tensor& x, bool matrix) {
  ParameterGroup g{.name = "all", .whole_matrices = matrix};
  g.parameters.emplace_back(x);
  return {g};
}

std::unique_ptr<Optimizer> make(const std::string& rule, const json& o, const Tensor& x) {
  const double decay = o.value("weight_decay", 0.0), momentum = o.value("momentum", 0.0);
  const bool nesterov = o.value("nesterov", false);
  if (rule.starts_with("sgd"))
    return std::make_unique<Sgd>(one_group(x, false),
                                 SgdOptions{.momentum = momentum,
                                            .dampening = o.value("dampening", 0.0),
                                            .nesterov = nesterov,
                                            .weight_decay = decay});
  if (rule.starts_with("muon")) {
    const bool as_adamw = o.contains("adjust_lr_fn");
    return std::make_unique<Muon>(
        one_group(x, true), MuonOptions{.momentum = momentum,
                                        .nesterov = nesterov,
                                        .orthogonal = {Polynomials::simple, 5},
                                        .scale = as_adamw ? MuonScale::spectral : MuonScale::shape,
                                        .extra_scale = as_adamw ? 0.2 : 1,
                                        .weight_decay = decay});
  }
  const std::vector<double> betas = o.value("betas", std::vector<double>{0.9, 0.999});
  return std::make_unique<Adam>(
      one_group(x, false),
      AdamOptions{.beta1 = betas[0],
                  .beta2 = betas[1],
                  .epsilon = o.value("eps", 1e-8),
                  .weight_decay = decay,
                  .decay = rule.starts_with("adamw") ? Decay::decoupled : Decay::through_gradient});
}

/// How far apart the two may be after t steps.
double tolerance(const std::string& rule, int t) {
  // A step rounds θ, of size 1, and what is added to it about four times.
  if (!rule.starts_with("muon")) return t * 4 * 0x1p-24;
  // The momentum is off by a few f32 roundings, which Newton–Schulz multiplies by up to its slope at 0,
  // 3.4445⁵ = 485; then by η and a scale below 1.
  return t * 4 * 0x1p-24 * 485 * 0.01;
}

TEST(Torch, AHundredStepsOfEachRule) {
  std::ifstream file("tests/fixtures/optimizers.json");
  ASSERT_TRUE(file) << "run the tests from the root of the repository";
  const json fixture = json::parse(file);
  const json& rules = fixture.at("rules");
  ASSERT_EQ(rules.size(), 12u);
  for (Device device : test_devices())
    for (const auto& [rule, stored] : rules.items()) {
      std::vector<double> values;
      for (int i = 0; i < kRows * kColumns; ++i) values.push_back(random(i));
      Tensor x = tensor(values, {kRows, kColumns}, DType::f32, device).requires_grad_();
      const auto optimizer = make(rule, stored.at("options"), x);
      for (int t = 1; t <= 100; ++t) {
        for (int i = 0; i < kRows * kColumns; ++i)
          values[size_t(i)] = random(1 + t * 64 + i) * std::pow(4.0, i % 3 - 1);
        optimizer->zero_grad();
        mul(x, 1).backward(tensor(values, x.shape(), DType::f32, device));
        optimizer->step(stored.at("options").at("lr"));
        const auto found = stored.at("theta").find(std::to_string(t));
        if (found == stored.at("theta").end()) continue;
        for (int i = 0; i < kRows * kColumns; ++i)
          EXPECT_NEAR(x.at(i), (*found)[size_t(i)].get<double>(), tolerance(rule, t))
              << rule << ", step " << t << ", element " << i << " on " << device;
      }
    }
}

}  // namespace
}  // namespace gradus::optim
