// The parity of steps in f32 and bf16: on the CPU, and on two GPUs through NCCL where there are two.
//
// Rounding grows with depth, and the gradient of layer l of L has gone through L + 1 − l of them [arXiv
// 2506.09280, Theorem 5.3]:
//
//   rel ≤ k · 1.03^(L + 1 − l) · ε        f32: k = 64, tensors and rows;  bf16: k = 4, tensors
//
// A row whose terms nearly cancel has few right digits in any layout (row i of the pooler's matrix has the
// factor w_0i − w_1i), so rows are measured by the mean row of their tensor at least; in f64 they are not.
// On the CPU correct code comes to 0.2 of the bound in f32 and to 0.5 in bf16. A bug counts 1e-3 at least,
// which bf16 may not tell, but f32 does.
#include <gtest/gtest.h>

#include <iostream>

#include "core/cuda.h"
#include "parallel/nccl_group.h"
#include "tests/parallel/each_world.h"
#include "tests/parallel/parity.h"

namespace gradus::parallel {
namespace {

using namespace parity;

double bound(const Case& c, const std::string& name) {
  int64_t from_the_end = 1;  // the head and the last norm
  if (name.rfind("blocks.", 0) == 0) from_the_end = c.family.layers() - std::stoll(name.substr(7));
  if (name.find("tokens") == 0 || name.find("positions") == 0 || name.find("words") == 0 ||
      name.find("types") == 0)
    from_the_end = c.family.layers() + 1;
  const bool is_f32 = c.dtype == DType::f32;
  return (is_f32 ? 64 * 0x1p-23 : 4 * 0x1p-7) * std::pow(1.03, double(from_the_end));
}

/// The largest error of a gradient, in parts of its bound. More than one is a failure.
double expect_gradients(const Case& c, const Training& run, const Reference& one,
                        const char* what) {
  double worst = 0;
  for (const optim::Slot& slot : run.flat().slots()) {
    const Errors e =
        errors_of(slot.parameter, run.gradient(slot), run.flat().layout().own_part(slot),
                  one.gradients.at(slot.name()), one.mean_size, true);
    const double error = c.dtype == DType::f32 ? std::max(e.tensor, e.row) : e.tensor;
    EXPECT_LE(error, bound(c, slot.name()))
        << slot.name() << " against " << what << ", tensor " << e.tensor << ", worst row " << e.row;
    worst = std::max(worst, error / bound(c, slot.name()));
  }
  return worst;
}

class ParityPrecision : public testing::TestWithParam<Case> {};

TEST_P(ParityPrecision, A1_P1_Steps) {
  const Case& c = GetParam();
  if (c.on_gpus && (!has_nccl() || cuda_device_count() < 2))
    GTEST_SKIP() << "two GPUs and NCCL are needed; here are " << cuda_device_count() << " GPUs";
  if (launched_by_mpi()) GTEST_SKIP() << "runs on threads";
  Case exactly = c;
  exactly.dtype = DType::f64, exactly.on_gpus = false;
  const Reference& one = reference_of(c);
  const Reference& exact = reference_of(exactly);
  std::mutex mutex;
  double worst = 0, worst_exact = 0;
  run_ranks(c.plan.dp * c.plan.tp, [&](Communicator world) {
    SCOPED_TRACE("rank " + std::to_string(world.rank()));
    Training run(world, c);
    for (int k = 0; k < kSteps; ++k) {
      const StepFound found = run.step();
      check_same_parameters(run.flat(), run.groups());
      if (k > 0) continue;
      const double tolerance = bound(c, "blocks.0");
      EXPECT_EQ(found.targets, exact.steps[0].targets);
      EXPECT_NEAR(found.loss / exact.steps[0].loss, 1, tolerance);
      EXPECT_NEAR(found.norm / exact.steps[0].norm, 1, tolerance);
      const double error = expect_gradients(c, run, one, "one rank");
      const double exact_error = expect_gradients(c, run, exact, "one rank in f64 on the CPU");
      const std::lock_guard lock(mutex);
      worst = std::max(worst, error), worst_exact = std::max(worst_exact, exact_error);
    }
  });
  std::cout << c << ": in parts of the bound " << worst << " from one rank, " << worst_exact
            << " from f64\n";
}

// Values are small enough that no tanh saturates: 1 − y² has no digits there, in any layout.
std::vector<Case> cases() {
  const Plan plans[] = {{.dp = 2},
                        {.dp = 2, .zero = true},
                        {.tp = 2},
                        {.tp = 2, .sequence = true},
                        {.tp = 2, .sequence = true, .micro_batches = 2}};
  std::vector<Case> all;
  for (bool on_gpus : {false, true})
    for (const char* family : {"gpt2_tied", "llama_untied", "bert"})
      for (DType dtype : {DType::f32, DType::bf16})
        for (const Plan& plan : plans)
          all.push_back(
              {{family, on_gpus, on_gpus ? 0.04 : 0.12}, plan, {}, dtype, dtype, on_gpus});
  return all;
}

INSTANTIATE_TEST_SUITE_P(, ParityPrecision, testing::ValuesIn(cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace gradus::parallel
