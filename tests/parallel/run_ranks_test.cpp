// The engine under ranks that are threads: each computes what it would compute alone. ThreadSanitizer runs
// these too (.ci/run).
#include "parallel/run_ranks.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "autograd/gradcheck.h"
#include "models/gpt.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "optim/adam.h"

namespace gradus::parallel {
namespace {

/// Of every op's examples, forward and backward in bf16 and in f64: how far they lie apart.
std::vector<double> all_ops() {
  std::vector<double> errors;
  for (const Gradcheck* check : Gradcheck::all()) {
    const GradcheckResult result =
        compare_with_f64(check->example, DType::bf16, kCpu, Layout::contiguous);
    errors.push_back(result.worst);
    errors.push_back(double(result.compared));
  }
  return errors;
}

/// Losses of some steps of a small GPT.
std::vector<double> train() {
  Gpt gpt({.layers = 2, .width = 64, .heads = 2, .vocab = 32, .max_length = 16, .dropout = 0.1});
  nn::initialize(gpt, 1);
  optim::Adam adam(gpt);
  Generator random(2);
  const Tensor ids = empty({4, 16}, DType::i64);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.set(i, double(i * i % 32));
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    const Tensor loss = gpt.loss(ids, ids, &random);
    loss.backward();
    adam.step(1e-3);
    adam.zero_grad();
    losses.push_back(loss.item());
  }
  return losses;
}

// Each rank asks for two threads more, so that they compete for the workers.
void beside_each_other(const std::function<std::vector<double>()>& work) {
  const std::vector<double> alone = work();
  run_ranks(3, [&](Communicator) {
    omp_set_num_threads(3);
    EXPECT_EQ(work(), alone);
  });
}

TEST(RunRanks, EveryOpComputesTheSameBesideItself) { beside_each_other(all_ops); }
TEST(RunRanks, ModelsTrainBesideEachOther) { beside_each_other(train); }

// What one rank has made and another frees: tensors, their memory, their graph.
TEST(RunRanks, OneRankFreesWhatAnotherHasMade) {
  std::vector<Tensor> made(4);
  run_ranks(4, [&](Communicator world) {
    for (int round = 0; round < 20; ++round) {
      const Tensor x = ones({50 * (round + 1)}).requires_grad_();
      made[size_t(world.rank())] = sum(x * x);
      world.barrier();
      Tensor& other = made[size_t((world.rank() + 1) % 4)];
      other.backward();
      other = {};
      world.barrier();
    }
  });
}

TEST(RunRanks, TheRanksShareTheCores) {
  const int cores = omp_get_max_threads();
  run_ranks(cores, [](Communicator) { EXPECT_EQ(omp_get_max_threads(), 1); });
  run_ranks(2 * cores, [](Communicator) { EXPECT_EQ(omp_get_max_threads(), 1); });
  EXPECT_EQ(omp_get_max_threads(), cores);
}

}  // namespace
}  // namespace gradus::parallel
