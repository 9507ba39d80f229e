// gelu_mlp against its parts in f64. On a GPU the 16-bit types take the way through epilogues where the
// inner width is a multiple of 8, on a Hopper GPU through products of our own where it is one of 256.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "ops/gelu_mlp.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

// One row of one channel: h = x w₁ + b₁ = 1.5 and y = 2 gelu(h) + 10, with gelu(1.5) and gelu'(1.5)
// computed by hand from the formula of ops/activation.cu.
TEST(GeluMlp, OfOneNumber) {
  const double gelu = 1.3995715769802328, slope = 1.1277107931514332;
  for (Device device : test_devices()) {
    auto number = [&](double v, const Shape& shape) {
      return full(shape, v, DType::f64, device).requires_grad_();
    };
    Tensor x = number(2, {1}), w1 = number(0.5, {1, 1}), b1 = number(0.5, {1});
    Tensor w2 = number(2, {1, 1}), b2 = number(10, {1});
    Tensor y = gelu_mlp(x, w1, b1, w2, b2);
    EXPECT_NEAR(y.item(), 10 + 2 * gelu, 1e-14);
    y.backward(full({1}, 3, DType::f64, device));
    EXPECT_NEAR(x.grad().item(), 3 * 2 * slope * 0.5, 1e-14);
    EXPECT_NEAR(w1.grad().item(), 3 * 2 * slope * 2, 1e-13);
    EXPECT_NEAR(b1.grad().item(), 3 * 2 * slope, 1e-14);
    EXPECT_NEAR(w2.grad().item(), 3 * gelu, 1e-14);
    EXPECT_EQ(b2.grad().item(), 3);
  }
}

Tensor reals(const Shape& shape, DType dtype, Device device, double seed, double size) {
  Tensor x = empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.set(i, size * std::sin(seed + 0.7 * double(i * i % 1013)));
  return to(x, device);
}

/// The values of x as a CPU tensor in f64.
Tensor exact(const Tensor& x) { return cast(to(x.detach(), kCpu), DType::f64); }

void expect_within(const Tensor& bound, const Tensor& got, const Tensor& want, const char* what) {
  auto g = exact(got).to_vector(), w = want.to_vector(), b = bound.to_vector();
  ASSERT_EQ(g.size(), w.size()) << what;
  for (size_t i = 0; i < g.size(); ++i)
    ASSERT_TRUE(std::abs(g[i] - w[i]) <= b[i])
        << what << ", element " << i << ": " << g[i] << ", expected " << w[i] << " ± " << b[i];
}

struct Sizes {
  int64_t rows, in, inner, out;
  bool biases;
};

// u is the roundoff of the type. |gelu'| ≤ 1.13 and |gelu''| ≤ 0.8; a GPU's tanh is good to 2⁻¹¹, so σ to
// 2⁻¹² ≤ u / 2. What is stored carries
//
//   A     u |A| of its own, 1.13 u |H| where H is rounded first, |H| u/2 of σ      ≤ u (|A| + 2 |H|) = δA
//   dH    with H rounded 0.8 u |H| |dA|, rounding dA and dH 1.13 u |dA| each,
//         of σ, in s (1 + H (1 − s) v'), less than (1 + |H|) u |dA|                ≤ u |dA| (4 + 2 |H|) = δdH
//   Y, dX …   their operand's, Σ δA |W₂| and so on, and u of themselves
//
// Sums of k terms are formed in f32 and add k 2⁻²⁴ Σ|…|; `sums` is four times that for the longest.
void compare_with_parts(const Sizes& s, DType dtype, Device device, bool main_grads) {
  auto made = [&](const Shape& shape, double seed, double size) {
    return reals(shape, dtype, device, seed, size).requires_grad_();
  };
  Tensor x = made({s.rows, s.in}, 1, 1.5), w1 = made({s.inner, s.in}, 2, 0.4);
  Tensor w2 = made({s.out, s.inner}, 3, 0.3), b1, b2;
  if (s.biases) b1 = made({s.inner}, 4, 0.5), b2 = made({s.out}, 5, 0.5);
  Tensor dy = reals({s.rows, s.out}, dtype, device, 6, 1);
  DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  for (const Tensor& p : {w1, b1, w2, b2})
    if (main_grads && p) p.set_main_grad(full(p.shape(), NAN, wide, device));

  Tensor y = gelu_mlp(x, w1, b1, w2, b2);
  y.backward(dy);

  NoGrad guard;
  Tensor X = exact(x), W1 = exact(w1), W2 = exact(w2), dY = exact(dy);
  Tensor H = linear(X, W1, b1 ? exact(b1) : Tensor{}), dA = matmul(dY, W2);
  Tensor A = gelu(H, GeluKind::tanh), slope;
  {
    EnableGrad recorded;
    Tensor h = H.detach().requires_grad_();
    slope = grad(sum(gelu(h, GeluKind::tanh)), {h})[0];
  }
  Tensor dH = dA * slope;
  double u = roundoff(dtype), u_grad = main_grads ? roundoff(wide) : u;
  double sums = 4 * double(std::max({s.rows, s.in, s.inner})) * roundoff(wide);
  Tensor error_A = (abs(A) + abs(H) * 2.0) * (u + sums);
  Tensor error_dH = abs(dA) * (abs(H) * 2.0 + 4.0) * (u + sums);
  auto bound = [&](const Tensor& want, const Tensor& error, const Tensor& size, double own) {
    return error + size * sums + abs(want) * own;
  };
  auto tr = [](const Tensor& m) { return transpose(m, 0, 1); };

  Tensor want = linear(A, W2, b2 ? exact(b2) : Tensor{});
  Tensor size = matmul(abs(A), abs(tr(W2))) + 1.0;  // 1: of the bias
  expect_within(bound(want, matmul(error_A, abs(tr(W2))), size, u), y, want, "y");
  want = matmul(dH, W1);
  expect_within(bound(want, matmul(error_dH, abs(W1)), matmul(abs(dH), abs(W1)), u), x.grad(), want,
                "dx");
  want = matmul(tr(dH), X);
  expect_within(bound(want, matmul(tr(error_dH), abs(X)), matmul(abs(tr(dH)), abs(X)), u_grad),
                w1.grad(), want, "dw1");
  want = matmul(tr(dY), A);
  expect_within(bound(want, matmul(abs(tr(dY)), error_A), matmul(abs(tr(dY)), abs(A)), u_grad),
                w2.grad(), want, "dw2");
  if (!s.biases) return;
  want = sum(dH, {0});
  expect_within(bound(want, sum(error_dH, {0}), sum(abs(dH), {0}), u_grad), b1.grad(), want, "db1");
  want = sum(dY, {0});
  expect_within(bound(want, want * 0.0, sum(abs(dY), {0}), u_grad), b2.grad(), want, "db2");
}

TEST(GeluMlp, EqualsItsPartsInF64) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      for (Sizes s :
           {Sizes{48, 24, 64, 16, true}, Sizes{33, 16, 128, 24, false}, Sizes{21, 12, 60, 20, true},
            Sizes{1, 8, 8, 8, true}, Sizes{200, 64, 256, 64, true}, Sizes{389, 200, 512, 136, true},
            Sizes{131, 136, 768, 72, false}})
        for (bool main_grads : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << device << " " << dtype << " " << s.rows << " × " << s.in << " → "
                       << s.inner << (main_grads ? " main" : ""));
          compare_with_parts(s, dtype, device, main_grads);
          if (testing::Test::HasFatalFailure()) return;
        }
}

// More tiles than a GPU has multiprocessors, several times: blocks take the next ones.
TEST(GeluMlp, OfManyTilesEqualsItsPartsInF64) {
  for (Device device : test_devices())
    if (device.is_cuda())
      compare_with_parts({1000, 136, 5376, 1032, true}, DType::bf16, device, true);
}

// The ends of gelu, where h³ leaves the range of the type: y = h w₂ on the right, 0 on the left.
TEST(GeluMlp, FarFromZeroItIsLinearOrNothing) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      Tensor x = tensor({200, -200}, {2, 1}, dtype);
      x = to(x, device).requires_grad_();
      Tensor w1 = full({8, 1}, 1, dtype, device), w2 = full({1, 8}, 0.125, dtype, device);
      Tensor y = gelu_mlp(x, w1, {}, w2);
      EXPECT_EQ(y.to_vector(), (std::vector<double>{200, 0})) << device << " " << dtype;
      y.backward(full({2, 1}, 1, dtype, device));
      EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 0})) << device << " " << dtype;
    }
}

TEST(GeluMlp, ErrorsNameTheParameter) {
  auto error_of = [](const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                     const Tensor& b2) -> std::string {
    try {
      gelu_mlp(x, w1, b1, w2, b2);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  Tensor x = zeros({3, 4}), w1 = zeros({8, 4}), b1 = zeros({8}), w2 = zeros({5, 8}),
         b2 = zeros({5});
  EXPECT_EQ(error_of(x, w1, b1, w2, b2), "no error");
  EXPECT_EQ(error_of(x, w1, {}, w2, {}), "no error");
  EXPECT_NE(error_of(x, zeros({8, 3}), b1, w2, b2).find("w1 is (8, 3) f32, needed is (8, 4)"),
            std::string::npos);
  EXPECT_NE(error_of(x, w1, b1, zeros({5, 7}), b2).find("w2 is (5, 7) f32, needed is (5, 8)"),
            std::string::npos);
  EXPECT_NE(error_of(x, w1, zeros({4}), w2, b2).find("b1 is (4,) f32, needed is (8,)"),
            std::string::npos);
  EXPECT_NE(error_of(x, w1, b1, w2, zeros({5}, DType::f64)).find("b2 is (5,) f64"),
            std::string::npos);
}

}  // namespace
}  // namespace gradus
