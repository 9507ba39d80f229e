// The schedules beside PyTorch's, which tests/fixtures/make_optimizers.py stored for 80 steps.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "sched/sched.h"

namespace gradus::sched {
namespace {

TEST(Torch, SchedulesAreTheSame) {
  std::ifstream file("tests/fixtures/optimizers.json");
  ASSERT_TRUE(file) << "run the tests from the root of the repository";
  const nlohmann::json fixture = nlohmann::json::parse(file);
  const std::map<std::string, Schedule> ours = {
      {"step", step(0.1, 10, 0.5)},
      {"multi_step", multi_step(0.1, {5, 20, 21}, 0.1)},
      {"exponential", exponential(0.1, 0.9)},
      {"cosine_annealing", cosine_annealing(0.1, 0.001, 50)},
      {"cosine_restarts", cosine_restarts(0.1, 0.001, 10, 2)},
      {"cosine_restarts even", cosine_restarts(0.1, 0.001, 10)},
      {"linear", linear(0.1 / 3, 0.1, 5)},
      {"sequence",
       sequence({linear(0.025, 0.1, 4), constant(0.1), exponential(0.1, 0.9)}, {4, 10})},
  };
  ASSERT_EQ(fixture.at("schedules").size(), ours.size());
  for (const auto& [name, rates] : fixture.at("schedules").items())
    for (size_t n = 0; n < rates.size(); ++n) {
      // PyTorch multiplies step by step: n roundings, and in its cosine differences of cosines, too.
      const double want = rates[n];
      EXPECT_NEAR(ours.at(name)(int64_t(n)), want, 1e-13) << name << " at " << n;
    }
}

}  // namespace
}  // namespace gradus::sched
