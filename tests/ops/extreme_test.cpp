#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/accumulate.h"
#include "core/cuda.h"
#include "ops/ops.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = INFINITY;
const DType kFloating[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

std::vector<Device> devices() {
  return cuda_device_count() > 0 ? std::vector<Device>{kCpu, kCuda} : std::vector<Device>{kCpu};
}

TEST(Max, N9_TiedEntriesShareTheGradient) {
  for (Device device : devices())
    for (DType dtype : kFloating) {
      Tensor x = tensor({1, 5, 5, 5, 2, 7, 7, 0}, {2, 4}, dtype, device).requires_grad_();
      Tensor y = max(x, {1});
      EXPECT_EQ(y.to_vector(), (Values{5, 7}));
      y.backward(tensor({0.75, -3}, {2}, dtype, device));
      Values want{0, .25, .25, .25, 0, -1.5, -1.5, 0}, got = x.grad().to_vector();
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i],
                    2 * roundoff(dtype) * std::abs(want[i]));  // 1/3 and its product
    }
}

TEST(Min, N9_TiedEntriesShareTheGradient) {
  for (Device device : devices()) {
    Tensor x = tensor({3, -2, 4, -2, 8, 8}, {3, 2}, DType::f64, device).requires_grad_();
    Tensor y = min(x, {0}, true);
    EXPECT_EQ(y.shape(), Shape({1, 2}));
    EXPECT_EQ(y.to_vector(), (Values{3, -2}));
    y.backward(tensor({0.3, -0.7}, {1, 2}, DType::f64, device));
    EXPECT_EQ(x.grad().to_vector(), (Values{.3, -.35, 0, -.35, 0, 0}));
  }
}

// More ties than f16 can count: each gets dy / 70000, not dy / ∞.
TEST(Max, N9_ManyTiesInF16) {
  Tensor x = full({70000}, 1, DType::f16).requires_grad_();
  max(x).backward(tensor({1000}, {}, DType::f16));
  double share = 1000.0 / 70000;
  EXPECT_NEAR(x.grad().at(69999), share, 0.01 * share);  // 1/70000 is subnormal in f16: 240 ulp
}

TEST(Argmax, N10_LowestIndexOfATie) {
  for (Device device : devices())
    for (DType dtype : kFloating) {
      Tensor x = tensor({1, 5, 5, 0, -4, -4, 2, -4}, {2, 4}, dtype, device);
      EXPECT_EQ(argmax(x, 1).to_vector(), (Values{1, 2}));
      EXPECT_EQ(argmin(x, -1).to_vector(), (Values{3, 0}));
      EXPECT_EQ(argmax(x, 0, true).to_vector(), (Values{0, 0, 0, 0}));
      EXPECT_EQ(argmax(x, 0, true).shape(), Shape({1, 4}));
      EXPECT_EQ(argmax(x, 1).dtype(), DType::i64);
    }
}

// Long rows take other paths: lanes, leaves, blocks, several parts on a GPU. The largest value stands
// twice, the smallest at the very end.
TEST(Argmax, N10_InLongRowsAndColumns) {
  for (Device device : devices())
    for (int64_t n : {63, 64, 1000, 4097, 150001}) {
      Values v(size_t(n) * 3);
      for (size_t i = 0; i < v.size(); ++i) v[i] = double(i * 7919 % 1000);
      auto at = [n](int64_t row, int64_t i) { return size_t(row * n + i); };
      v[at(0, n / 2)] = v[at(0, n / 2 + 3)] = v[at(1, 0)] = v[at(2, n - 1)] = 2000;
      v[at(0, n - 1)] = v[at(1, n - 1)] = v[at(2, 1)] = -1;
      Tensor x = tensor(v, {3, n}, DType::f32, device);
      Values largest{double(n / 2), 0, double(n - 1)}, smallest{double(n - 1), double(n - 1), 1};
      EXPECT_EQ(argmax(x, 1).to_vector(), largest) << n;
      EXPECT_EQ(argmin(x, 1).to_vector(), smallest) << n;
      Tensor columns = contiguous(expand(unsqueeze(transpose(x, 0, 1), 2), {n, 3, 4}));
      EXPECT_EQ(select(argmax(columns, 0), 1, 2).to_vector(), largest) << n;
      EXPECT_EQ(max(columns, {0, 2}).to_vector(), Values(3, 2000.0));
    }
}

TEST(Max, N12_NanWins) {
  for (Device device : devices())
    for (DType dtype : kFloating)
      for (int64_t n : {5, 300}) {
        Tensor x = full({2, n}, -kInf, dtype, device);
        EXPECT_EQ(max(x).item(), -kInf);
        EXPECT_EQ(argmax(x, 1).to_vector(), (Values{0, 0}));
        EXPECT_EQ(argmin(x, 1).to_vector(), (Values{0, 0}));
        fill_(slice(slice(x, 0, 1, 2), 1, 2, 3), kInf);
        fill_(slice(slice(x, 0, 1, 2), 1, 3, 5), kNan);
        for (Tensor y : {max(x, {1}), min(x, {1})}) {
          EXPECT_EQ(y.at(0), -kInf);
          EXPECT_TRUE(std::isnan(y.at(1)));
        }
        EXPECT_EQ(argmax(x, 1).to_vector(), (Values{0, 3}));
        EXPECT_EQ(argmin(x, 1).to_vector(), (Values{0, 3}));
      }
}

TEST(Max, N12_TheGradientGoesToTheNans) {
  Tensor x = tensor({1, kNan, 3, kNan}, {4}, DType::f64).requires_grad_();
  max(x).backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{0, .5, 0, .5}));
}

TEST(Max, N16_OfNothingIsAnError) {
  Tensor x = zeros({3, 0, 2});
  auto expect_error = [](auto call, const std::string& text) {
    try {
      call();
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  };
  expect_error([&] { max(x, {1}); }, "max of no elements: shape (3, 0, 2)");
  expect_error([&] { min(x); }, "min of no elements: shape (3, 0, 2)");
  expect_error([&] { argmax(x, 1); }, "argmax of no elements: shape (3, 0, 2)");
  expect_error([&] { argmin(x, -2); }, "argmin of no elements: shape (3, 0, 2)");
}

TEST(Max, N15_OfNoRowsHasNoElements) {
  Tensor x = zeros({0, 3}).requires_grad_();
  Tensor y = max(x, {1}, true);
  EXPECT_EQ(y.shape(), Shape({0, 1}));
  EXPECT_EQ(argmax(x, 1).shape(), Shape({0}));
  y.backward(zeros({0, 1}));
  EXPECT_EQ(x.grad().shape(), x.shape());
}

TEST(Max, G6_OfViewsIsThatOfTheirCopies) {
  Values v(6 * 7 * 10);
  for (size_t i = 0; i < v.size(); ++i) v[i] = double(i * 7919 % 421);
  Tensor x = tensor(v, {6, 7, 10}, DType::f64);
  for (Tensor view : {transpose(x, 0, 2), slice(x, 2, 1, 10, 2),
                      expand(slice(x, 1, 3, 4), {6, 5, 10}), permute(x, {2, 0, 1})}) {
    Tensor copy = clone_values(view);
    for (int dim : {0, 1, 2}) {
      EXPECT_EQ(max(view, {dim}).to_vector(), max(copy, {dim}).to_vector());
      EXPECT_EQ(argmin(view, dim).to_vector(), argmin(copy, dim).to_vector());
    }
    EXPECT_EQ(min(view, {0, 2}).to_vector(), min(copy, {0, 2}).to_vector());
  }
}

}  // namespace
}  // namespace gradus
