// Examples of public functions that no other test or tutorial calls by name. See examples_test.sh.
#include <gtest/gtest.h>

#include "autograd/engine.h"
#include "nn/linear.h"
#include "ops/ops.h"
#include "sched/wsd.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

// d(x²)/dx at 3, seeded with 1, and d(5x)/dx, seeded with 10: one sweep adds 6 and 50.
TEST(Examples, RunBackwardFromTwoRoots) {
  Tensor x = tensor({3}, {1}, DType::f64).requires_grad_();
  Tensor seed = tensor({1}, {1}, DType::f64), ten = tensor({10}, {1}, DType::f64);
  Tensors dx = run_backward({x * x, x * 5}, {seed, ten}, {x}, false, {});
  EXPECT_EQ(dx[0].item(), 56);
  EXPECT_FALSE(x.grad());
}

TEST(Examples, EmptyLikeHasShapeTypeAndPlace) {
  Tensor x = zeros({2, 3}, DType::bf16), y = empty_like(x);
  EXPECT_EQ(y.shape(), Shape({2, 3}));
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(y.device(), kCpu);
  EXPECT_NE(y.raw(), x.raw());
}

TEST(Examples, ContiguousStrides) { EXPECT_EQ(contiguous_strides({2, 3, 4}), Strides({12, 4, 1})); }

TEST(Examples, SqueezeForgetsADimensionOfOne) {
  Tensor x = tensor({1, 2, 3}, {3, 1}).requires_grad_(), y = squeeze(x, -1);
  EXPECT_EQ(y.shape(), Shape({3}));
  y.backward(tensor({4, 5, 6}, {3}));
  EXPECT_EQ(x.grad().shape(), Shape({3, 1}));
  EXPECT_EQ(x.grad().to_vector(), (Values{4, 5, 6}));
  EXPECT_THROW(squeeze(x, 0), Error);
}

TEST(Examples, NameParameters) {
  nn::Linear layer(2, 3);
  nn::name_parameters(layer);
  EXPECT_EQ(layer.weight.name(), "weight");
  EXPECT_EQ(std::string(layer.bias.describe()), "bias (3,) f32");
}

// Half-way down the tail: 1 − ½, ½ (1 + cos ½π), 2/√2 − 1, 1 − 1/√2.
TEST(Examples, TailShareHalfWay) {
  EXPECT_EQ(sched::tail_share(sched::Tail::linear, 0.5), 0.5);
  EXPECT_NEAR(sched::tail_share(sched::Tail::cosine, 0.5), 0.5, 1e-15);
  EXPECT_NEAR(sched::tail_share(sched::Tail::exponential, 0.5), 0.4142135623730951, 1e-15);
  EXPECT_NEAR(sched::tail_share(sched::Tail::minus_sqrt, 0.5), 0.2928932188134524, 1e-15);
}

}  // namespace
}  // namespace gradus
