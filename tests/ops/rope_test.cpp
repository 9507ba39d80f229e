#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

void expect_near(const Values& got, const Values& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
}

/// References have 9 digits; a turn takes two products and a sum of rounded cosines and sines.
double tolerance(DType t) { return 5e-9 + 6 * roundoff(t); }

TEST(Rope, ByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Tensor x = tensor({1, 2, 3, 4}, {1, 4}, t, device).requires_grad_();
      Tensor y = rope(x, {.first_position = 3});
      expect_near(y.to_vector(), {-1.41335252, 1.87911807, -2.82885748, 4.05819114}, tolerance(t));
      y.backward(tensor({0.3, -0.7, 1.1, 0.2}, {1, 4}, t, device));
      expect_near(x.grad().to_vector(), {-0.14176574, -0.693685924, -1.13132775, 0.220906857},
                  tolerance(t));
      Tensor z = rope(x, {.kind = RopeKind::interleaved, .first_position = 3});
      expect_near(z.to_vector(), {-1.27223251, -1.83886499, 2.8786681, 4.08818664}, tolerance(t));
    }
}

TEST(Rope,
     FrequenciesOfAnotherBase) {  // base 500, d = 8, position 1: (1, 0) becomes (cos θ, sin θ)
  for (Device device : test_devices()) {
    Tensor x = tensor({1, 1, 1, 1, 0, 0, 0, 0}, {1, 8}, DType::f64, device);
    Values y = rope(x, {.base = 500, .first_position = 1}).to_vector();
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(std::atan2(y[4 + i], y[i]),
                  (Values{1, 0.211474253, 0.0447213595, 0.00945741609})[i], 5e-10);
  }
}

TEST(Rope, EveryPositionAndPairByFormula) {
  const int64_t T = 150, d = 48, first = 1000;  // several stretches of the recurrence
  for (Device device : test_devices())
    for (DType t : {DType::f64, DType::f32, DType::bf16})
      for (RopeKind kind : {RopeKind::half, RopeKind::interleaved}) {
        Generator g(1);
        Tensor x = normal({2, 3, T, d}, g, 0, 1, t, device);
        Values in = cast(x, DType::f64).to_vector();
        Values y = cast(rope(x, {.kind = kind, .first_position = first}), DType::f64).to_vector(),
               want(y.size());
        for (int64_t row = 0; row < 2 * 3 * T; ++row)
          for (int64_t i = 0; i < d / 2; ++i) {
            double angle =
                double(first + row % T) * std::pow(10000.0, -2.0 * double(i) / double(d));
            bool half = kind == RopeKind::half;
            size_t a = size_t(row * d + (half ? i : 2 * i)),
                   b = size_t(row * d + (half ? i + d / 2 : 2 * i + 1));
            want[a] = in[a] * std::cos(angle) - in[b] * std::sin(angle);
            want[b] = in[b] * std::cos(angle) + in[a] * std::sin(angle);
          }
        // A cosine in f32 is wrong by up to π u (its argument was rounded) and 2 u (the function); then
        // two products and a sum: 8 u of |x_a| + |x_b|, here below 8. The result is rounded once more.
        double waves = t == DType::f64 ? 1e-11 : 8 * 8 * roundoff(DType::f32);
        expect_near(y, want, waves + 2 * roundoff(t));
      }
}

TEST(Rope, ProductsDependOnTheDistanceAlone) {
  Generator g(2);
  Tensor q = normal({1, 16}, g, 0, 1, DType::f64), k = normal({1, 16}, g, 0, 1, DType::f64);
  auto product = [&](int64_t at, int64_t other) {
    return sum(mul(rope(q, {.first_position = at}), rope(k, {.first_position = other}))).item();
  };
  EXPECT_NEAR(product(5, 2), product(105, 102), 1e-12);
  EXPECT_GT(std::abs(product(5, 2) - product(5, 3)), 1e-3);
}

TEST(Rope, G6_ViewsOfEveryLayoutEqualTheirCopies) {
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16}) {
      Generator g(4);
      Tensor x = normal({2, 5, 3, 32}, g, 0, 1, t, device);
      for (const Tensor& view :
           {permute(x, {0, 2, 1, 3}), slice(x, 1, 1, 4), slice(x, 3, 3, 27), transpose(x, 2, 3),
            expand(slice(x, 0, 0, 1), {4, 5, 3, 32}), reshape(x, {1, 1, 2, 5, 3, 32})}) {
        if (view.size(-1) % 2 != 0) continue;
        expect_near(rope(view).to_vector(), rope(clone(view)).to_vector(),
                    t == DType::f32 ? 1e-5 : 1e-2);  // "equal": on a GPU two kernels may fuse otherwise
      }
    }
}

TEST(Rope, WrongUseSaysWhatWasExpected) {
  EXPECT_THROW(rope(zeros({3, 5})), Error);
  EXPECT_THROW(rope(zeros({4})), Error);
  EXPECT_THROW(rope(zeros({3, 4}, DType::i32)), Error);
  EXPECT_THROW(rope(zeros({3, 4}), {.base = 0}), Error);
}

}  // namespace
}  // namespace gradus
