// The whole end of a step on many ranks against one rank, with the model of tests/parallel/elementwise_model.h.
#include "parallel/finalize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/parallel/elementwise_model.h"
#include "tests/parallel/late_parameters.h"

namespace gradus::parallel {
namespace {

using namespace elementwise;

/// What one rank finds.
struct Serial {
  std::map<std::string, Values> parameters, gradients;
  Values norms, zeros;
};

Serial serial() {
  Serial s;
  Training run({}, {});
  for (int k = 0; k < 3; ++k) {
    const optim::StepResult result = run.step({.max_norm = 3, .count_zeros = true});
    s.norms.push_back(result.grad_norm());
    s.zeros.push_back(double(result.zeros()));
    if (k == 0)
      for (auto& [name, part] : run.gradients()) s.gradients[name] = part.second;
  }
  s.parameters = run.parameters();
  return s;
}

/// Elements [begin, end) of a shard against the whole.
void expect_near(const nn::Parameter& p, const Values& mine, const Values& whole, int64_t begin,
                 int64_t end, double tolerance, const std::string& what) {
  const nn::ShardMap map(p.shape(), p.shard);
  double largest = 0;
  for (double x : whole) largest = std::max(largest, std::abs(x));
  for (int64_t i = begin; i < end; ++i)
    ASSERT_NEAR(mine[size_t(i)], whole[size_t(map(i))], tolerance * largest) << what << " " << i;
}

// A1, A3, P1, P7, P8, P11, P15: gradients, norms and zeros of one rank, and its parameters after three
// steps, in which the norm clips. Sums of 24 terms in another order differ by some 1e-15.
TEST(Finalize, A1_A3_P1_P7_P8_P11_P15_ManyRanksDoWhatOneDoes) {
  const Serial expected = serial();
  ASSERT_GT(expected.norms[0], 3);
  for (const Case& c : cases()) {
    on_ranks(c, [&](Communicator world) {
      SCOPED_TRACE(text_of(c));
      Training run(world, c);
      for (int k = 0; k < 3; ++k) {
        const optim::StepResult result = run.step({.max_norm = 3, .count_zeros = true});
        EXPECT_NEAR(result.grad_norm() / expected.norms[size_t(k)], 1, 1e-12);
        EXPECT_EQ(double(result.zeros()), expected.zeros[size_t(k)]);
        check_same_parameters(run.adam.flat(), run.groups);
        if (k > 0) continue;
        const auto gradients = run.gradients();
        for (const auto& [name, p] : run.net.named_parameters()) {
          const auto& [own, values] = gradients.at(name);
          expect_near(p, values, expected.gradients.at(name), own.begin, own.end, 1e-12,
                      "gradient of " + name);
        }
      }
      const auto parameters = run.parameters();
      for (const auto& [name, p] : run.net.named_parameters())
        expect_near(p, parameters.at(name), expected.parameters.at(name), 0, p.real_numel(), 1e-10,
                    name);
    });
  }
}

// With groups of one, the end of a step is precision.run(), bit for bit.
TEST(Finalize, OneRankIsThePlainOptimizer) {
  for (DType dtype : {DType::f64, DType::bf16}) {
    Training with({}, {.zero = true, .bucket = 100}, dtype), without({}, {}, dtype);
    for (int k = 0; k < 3; ++k) {
      with.step({.max_norm = 3});
      without.adam.zero_grad();
      for (int m : {0, 1})
        loss_of(without.net, {}, m * kSamples / 2, (m + 1) * kSamples / 2).backward();
      without.precision.request([](int64_t) { return optim::Rates{0.01, 0.1}; }, {.max_norm = 3});
      without.precision.run({.max_norm = 3});
    }
    EXPECT_EQ(with.parameters(), without.parameters());
  }
}

// A11: sums in the order of ranks have the same bits in an all-reduce and in a reduce-scatter, so a step
// in slices is the plain one, masters and moments included.
TEST(Finalize, A11_SlicesAreThePlainStepBitForBit) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (int dp : {2, 3})
      run_ranks(dp, [&](Communicator world) {
        Training plain(world, {1, dp, false, true, 150}, dtype);
        Training zero(world, {1, dp, true, true, 150}, dtype);
        for (int k = 0; k < 3; ++k) plain.step(), zero.step();
        EXPECT_EQ(plain.parameters(), zero.parameters());
        std::map<std::string, Values> whole;
        for (const optim::NamedState& s : plain.adam.state())
          whole[s.name] = s.value.read().to_vector();
        for (const optim::NamedState& s : zero.adam.state()) {
          const Values& all = whole.at(s.name);
          EXPECT_EQ(s.value.read().to_vector(), Values(all.begin() + s.begin, all.begin() + s.end))
              << s.name;
        }
        EXPECT_LT(zero.adam.flat().make_state().numel(), plain.adam.flat().make_state().numel());
      });
}

// Whatever reads parameters after a step waits for those that it reads: forward, update, comparison, masters.
TEST(Finalize, WhoReadsParametersWaitsForTheirGather) {
  for (DType dtype : {DType::f64, DType::bf16})
    run_ranks(2, [&](Communicator world) {
      const Case c{1, 2, true, true, 150};
      Training prompt(world, c, dtype), late(world, c, dtype);
      for (int k = 0; k < 3; ++k) {
        prompt.step(), late.step();
        make_late(late.adam.flat());
      }
      check_same_parameters(late.adam.flat(), late.groups);
      make_late(late.adam.flat());
      late.adam.flat().reload_masters(), prompt.adam.flat().reload_masters();
      prompt.step(), late.step();
      make_late(late.adam.flat());
      EXPECT_EQ(prompt.parameters(), late.parameters());
    });
}

// P8, P14: one rank's overflow is everybody's, before anyone acts on it. Then all go on alike.
TEST(Finalize, P8_P14_AllRanksSkipWhereOneOverflows) {
  for (bool zero : {false, true})
    for (int tp : {1, 2})
      run_ranks(2 * tp, [&](Communicator world) {
        Training run(world, {tp, 2, zero, true, 150}, DType::f16,
                     optim::GradScalerOptions{.initial = 1024, .hysteresis = 1});
        run.step();
        const auto before = run.parameters();
        const optim::StepResult bad = run.step({}, world.rank() == 1 ? INFINITY : 0);
        EXPECT_FALSE(bad.applied());
        EXPECT_EQ(bad.non_finite(), "bias");
        EXPECT_EQ(run.parameters(), before);
        EXPECT_TRUE(run.step().applied());
        EXPECT_EQ(run.precision.state().scale, 512);
        EXPECT_EQ(run.adam.steps(), 2);
        check_same_parameters(run.adam.flat(), run.groups);
      });
}

TEST(Finalize, ParametersThatShouldBeTheSameAreCompared) {
  for (int tp : {1, 2})
    for (const char* changed : {"pooler", "table"}) {
      auto body = [&](Communicator world) {
        Training run(world, {tp, 4 / tp});
        check_same_parameters(run.adam.flat(), run.groups);
        if (world.rank() == 3)
          for (const auto& [name, p] : run.net.named_parameters())
            if (name == changed) p.detach().set(0, 77);
        check_same_parameters(run.adam.flat(), run.groups);
      };
      expect_error([&] { run_ranks(4, body); }, {"different values of ", changed, "3"});
    }
}

TEST(Finalize, AnOptimizerOfOtherGroupsIsAnError) {
  Net net{Communicator()};
  nn::initialize(net, 1);
  optim::Adam cut(optim::default_groups(net), {}, {.tensor_rank = 1, .tensor_ranks = 2});
  EXPECT_THROW(Finalizer(cut, {}), Error);
  optim::Adam sliced(optim::default_groups(net), {}, {.slices = 2});
  EXPECT_THROW(Finalizer(sliced, {}), Error);
}

}  // namespace
}  // namespace gradus::parallel
