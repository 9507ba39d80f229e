#include "core/cuda_graph.h"

#include <gtest/gtest.h>

#include "autograd/node.h"
#include "core/staging.h"
#include "models/gpt.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

TEST(CudaGraph, IsForAGpuThatIsHere) {
  EXPECT_THROW(CudaGraph{kCpu}, Error);
  if (cuda_device_count() == 0) {
    EXPECT_THROW(CudaGraph{kCuda}, Error);
  }
}

class CudaGraphs : public testing::Test {
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(CudaGraphs, AReplayReadsItsInputsAgain) {
  const NoGrad no_grad;
  Staging in(kCuda, sizeof(float));
  const Tensor x = zeros({1}, DType::f32, kCuda);
  const auto set = [&](float value) {
    *static_cast<float*>(in.wait()) = value;
    in.copy_to(x.raw());
  };
  Tensor y;
  CudaGraph graph(kCuda);
  EXPECT_THROW(graph.replay(), Error);  // nothing is captured
  set(2);
  for (int i = 0; i < 5; ++i) {
    graph.run_or_replay([&] { y = mul(exp(x), x); });  // two runs, then replays
    EXPECT_EQ(y.item(), mul(exp(x), x).item()) << i;
    set(float(i));
  }
  EXPECT_EQ(graph.nodes(), 2);
}

// What a replay writes must not be memory that somebody else was given in the meantime.
TEST_F(CudaGraphs, ItsMemoryIsItsOwn) {
  const NoGrad no_grad;
  const Tensor x = ones({1 << 16}, DType::f32, kCuda);
  Tensor y;
  CudaGraph graph(kCuda);
  const auto f = [&] { y = exp(mul(exp(mul(x, 2.0)), 3.0)); };  // three results that die at once
  for (int i = 0; i < 3; ++i) graph.run_or_replay(f);
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(full({1 << 16}, i, DType::f32, kCuda));
  graph.replay();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(min(others[size_t(i)]).item(), i);
    EXPECT_EQ(max(others[size_t(i)]).item(), i);
  }
}

TEST_F(CudaGraphs, ForwardAndBackwardAreThoseOfAnEagerStep) {
  Gpt gpt({.layers = 2, .width = 64, .heads = 2, .vocab = 300, .max_length = 32});
  nn::initialize(gpt, 1);
  gpt.to(kCuda);
  const Tensor ids = full({4, 32}, 7, DType::i32, kCuda);
  Tensor loss;
  const auto step = [&] {
    for (nn::Parameter p : gpt.parameters()) p.zero_grad();
    loss = gpt.loss(ids, ids);
    loss.backward();
    loss = loss.detach();
  };
  const auto gradients = [&] {
    std::vector<double> sums;
    for (const nn::Parameter& p : gpt.parameters()) sums.push_back(sum(p.grad() * p.grad()).item());
    return sums;
  };
  step();
  const double eager_loss = loss.item();
  const auto eager = gradients();
  CudaGraph graph(kCuda);
  for (int i = 0; i < 4; ++i) graph.run_or_replay(step);
  EXPECT_EQ(loss.item(), eager_loss);
  EXPECT_EQ(gradients(), eager);
}

TEST_F(CudaGraphs, LookingAtAValueWhileCapturingIsAnError) {
  const NoGrad no_grad;
  const Tensor x = ones({3}, DType::f32, kCuda);
  CudaGraph graph(kCuda);
  EXPECT_THROW(graph.capture([&] { exp(sum(x)).item(); }), Error);
  EXPECT_THROW(graph.replay(), Error);
  EXPECT_EQ(sum(x).item(), 3);  // the stream works
  graph.capture([&] { exp(x); });
  graph.replay();
  synchronize(kCuda);
}

}  // namespace
}  // namespace gradus
