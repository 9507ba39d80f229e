#include "ops/sum_parts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

constexpr int64_t kWidth = 40;

Tensor gamma_with_main_grad(Generator& g, Device device) {
  Tensor gamma = normal({kWidth}, g, 1, 0.1, DType::f32, device).requires_grad_();
  gamma.set_main_grad(full({kWidth}, NAN, DType::f32, device));
  return gamma;
}

/// The norms of `gammas`, one after the other.
Tensor chain(Tensor x, const std::vector<Tensor>& gammas) {
  for (const Tensor& gamma : gammas) x = rms_norm(x, gamma);
  return x;
}

Values sum(const Values& a, const Values& b) {
  Values c = a;
  for (size_t i = 0; i < c.size(); ++i) c[i] += b[i];
  return c;
}

TEST(SumParts, AddsEachOfSeveralSums) {
  for (Device device : test_devices())
    for (int64_t number : {0, 1, 31, 33, 200}) {
      Generator g(uint64_t(number) + 3);
      const Tensor parts = normal({number, 2, kWidth}, g, 0, 1, DType::f64, device);
      MainGrad into{.buffer = full({kWidth}, 1, DType::f64, device), .written = true};
      const std::vector<Tensor> sums =
          sum_parts(parts, DType::f64, {{.wanted = true}, {.wanted = true, .into = &into}});
      EXPECT_FALSE(sums[1]);
      const Values p = parts.to_vector(), first = sums[0].to_vector(),
                   second = into.buffer.to_vector();
      for (size_t i = 0; i < size_t(kWidth); ++i) {
        double a = 0, b = 1;
        for (size_t k = 0; k < size_t(number); ++k)
          a += p[2 * k * kWidth + i], b += p[(2 * k + 1) * kWidth + i];
        EXPECT_NEAR(first[i], a, 1e-13 * double(number + 1));
        EXPECT_NEAR(second[i], b, 1e-13 * double(number + 1));
      }
    }
}

// More than one kernel takes.
TEST(SumParts, ManyWaitForTheEndOfBackward) {
  for (Device device : test_devices()) {
    Generator g(5);
    std::vector<Tensor> gammas, plain;
    for (int i = 0; i < 230; ++i) {
      gammas.push_back(gamma_with_main_grad(g, device));
      plain.push_back(clone(gammas.back().detach()).requires_grad_());
    }
    const Tensor x = normal({7, kWidth}, g, 0, 1, DType::f32, device),
                 dy = normal({7, kWidth}, g, 0, 1, DType::f32, device);
    chain(x, gammas).backward(dy);
    chain(x, plain).backward(dy);
    for (size_t i = 0; i < gammas.size(); ++i)
      EXPECT_EQ(gammas[i].grad().to_vector(), plain[i].grad().to_vector()) << i;
  }
}

TEST(SumParts, WhoReadsAGradientDuringBackwardHasAllOfIt) {
  for (Device device : test_devices()) {
    Generator g(6);
    const std::vector<Tensor> gammas{gamma_with_main_grad(g, device),
                                     gamma_with_main_grad(g, device)};
    std::vector<Values> seen(2);
    for (size_t i = 0; i < 2; ++i)
      gammas[i].register_leaf_hook([&, i](const Tensor& p) { seen[i] = p.grad().to_vector(); });
    chain(normal({7, kWidth}, g, 0, 1, DType::f32, device), gammas)
        .backward(normal({7, kWidth}, g, 0, 1, DType::f32, device));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_FALSE(std::isnan(seen[i].at(0)));
      EXPECT_EQ(seen[i], gammas[i].grad().to_vector());
    }
  }
}

// Also in the eyes of who asked for its address before, as a graph's capture does.
TEST(SumParts, AllIsThereWhenBackwardEnds) {
  Generator g(10);
  const Tensor buffer = full({kWidth}, NAN, DType::f32), gamma = gamma_with_main_grad(g, kCpu);
  gamma.set_main_grad(buffer);
  const float* there = buffer.data<float>();
  chain(normal({7, kWidth}, g, 0, 1, DType::f32), {gamma})
      .backward(normal({7, kWidth}, g, 0, 1, DType::f32));
  const Values seen(there, there + kWidth);
  EXPECT_EQ(seen, gamma.grad().to_vector());
}

TEST(SumParts, TwoUsesInOneBackwardAreAdded) {
  for (Device device : test_devices()) {
    Generator g(7);
    const Tensor gamma = gamma_with_main_grad(g, device), a = gamma_with_main_grad(g, device);
    const Tensor b = clone(a.detach()).requires_grad_();
    const Tensor x = normal({7, kWidth}, g, 0, 1, DType::f32, device),
                 dy = normal({7, kWidth}, g, 0, 1, DType::f32, device);
    chain(x, {a, gamma, a}).backward(dy);
    const Tensor first = clone(b.detach()).requires_grad_();
    chain(x, {first, gamma.detach(), b}).backward(dy);
    const Values want = sum(first.grad().to_vector(), b.grad().to_vector()),
                 got = a.grad().to_vector();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  }
}

TEST(SumParts, AfterABackwardThatFailed) {
  for (Device device : test_devices()) {
    Generator g(8);
    const Tensor gamma = gamma_with_main_grad(g, device),
                 x = normal({7, kWidth}, g, 0, 1, DType::f32, device);
    const Tensor dy = normal({7, kWidth}, g, 0, 1, DType::f32, device);
    Tensor leaf = clone(x).requires_grad_();
    leaf.register_hook([](const Tensor&) -> Tensor { fail("no more"); });
    EXPECT_THROW(chain(leaf, {gamma}).backward(dy), Error);
    gamma.zero_grad();
    chain(x, {gamma}).backward(dy);
    const Tensor plain = clone(gamma.detach()).requires_grad_();
    chain(x, {plain}).backward(dy);
    EXPECT_EQ(gamma.grad().to_vector(), plain.grad().to_vector());
  }
}

// The memory of a gradient may go before its sum is done.
TEST(SumParts, AGradientThatIsReplacedDuringBackward) {
  for (Device device : test_devices()) {
    Generator g(9);
    const Tensor first = gamma_with_main_grad(g, device), second = gamma_with_main_grad(g, device);
    second.register_leaf_hook(
        [&](const Tensor& p) { p.set_main_grad(full({kWidth}, 3, DType::f32, device)); });
    const Tensor x = normal({7, kWidth}, g, 0, 1, DType::f32, device),
                 dy = normal({7, kWidth}, g, 0, 1, DType::f32, device);
    chain(x, {first, second}).backward(dy);
    const Tensor plain = clone(first.detach()).requires_grad_();
    chain(x, {plain, second.detach()}).backward(dy);
    EXPECT_EQ(first.grad().to_vector(), plain.grad().to_vector());
  }
}

}  // namespace
}  // namespace gradus
