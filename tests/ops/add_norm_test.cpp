#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "core/allocator.h"
#include "core/random.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

struct Case {
  bool centred = true, bias = true;
  double dropout = 0;
};
const Case kCases[] = {{true, true, 0}, {true, false, 0.3}, {false, true, 0.3}, {false, false, 0}};

/// Inputs and the gradients of both results.
struct Inputs {
  Tensor x, y, bias, gamma, beta, ds, dn;

  Inputs(int64_t rows, int64_t C, DType t, Device device) {
    Generator g(11);
    auto draw = [&](const Shape& shape, double mean, double deviation) {
      return normal(shape, g, mean, deviation, t, device);
    };
    x = draw({rows, C}, 0.5, 1), y = draw({rows, C}, 0, 1), bias = draw({C}, 0, 0.5);
    gamma = draw({C}, 1, 0.1), beta = draw({C}, 0, 1);
    ds = draw({rows, C}, 0, 1), dn = draw({rows, C}, 0, 1);
  }
  Inputs in(DType t, Device device) const {
    Inputs moved = *this;
    for (Tensor* p :
         {&moved.x, &moved.y, &moved.bias, &moved.gamma, &moved.beta, &moved.ds, &moved.dn})
      *p = cast(to(*p, device), t).detach();
    return moved;
  }
  Tensors leaves(const Case& c) const {
    Tensors list{x, y, gamma};
    if (c.bias) list.push_back(bias);
    if (c.centred) list.push_back(beta);
    for (const Tensor& t : list) t.requires_grad_();
    return list;
  }
};

AddNorm fused(const Inputs& in, const Case& c) {
  AddNormOptions o{.dropout = c.dropout, .mask = {7, 3}};
  Tensor bias = c.bias ? in.bias : Tensor();
  return c.centred ? add_layer_norm(in.x, in.y, bias, in.gamma, in.beta, o)
                   : add_rms_norm(in.x, in.y, bias, in.gamma, o);
}
/// The same by ops that do one thing each; s has the value that `rounding` holds, and its own gradient.
auto unfused(DType rounding) {
  return [rounding](const Inputs& in, const Case& c) -> AddNorm {
    Generator masks({7, 3});
    Tensor s = in.x + dropout(c.bias ? in.y + in.bias : in.y, c.dropout, masks), value = s.detach();
    s = s + (cast(cast(value, rounding), s.dtype()) - value);
    return {s, c.centred ? layer_norm(s, in.gamma, in.beta) : rms_norm(s, in.gamma)};
  };
}

/// Both sides normalise the same rounded s, except where the last bit of s falls the other way: up to 2u
/// of an s up to 5, and r is below 1.5. Then each result is rounded once. What is left are errors of f32,
/// some roundings of numbers up to 5, and walks of √n steps in sums of n.
double tolerance(DType t, int64_t rows, int64_t C) {
  return 16 * roundoff(t) + (80 + std::sqrt(double(C)) + std::sqrt(double(rows))) * 0x1p-24;
}

/// Both results, then the gradients of the leaves.
template <class F>
std::vector<Values> run(const Inputs& in, const Case& c, F f) {
  Tensors leaves = in.leaves(c);
  AddNorm a = f(in, c);
  sum(a.sum * in.ds + a.normal * in.dn).backward();
  std::vector<Values> all{a.sum.to_vector(), a.normal.to_vector()};
  for (const Tensor& t : leaves) all.push_back(t.grad().to_vector());
  return all;
}

void expect_near(const std::vector<Values>& got, const std::vector<Values>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(got[k].size(), want[k].size());
    double worst = 0;
    for (size_t i = 0; i < want[k].size(); ++i) {
      double error = std::abs(got[k][i] - want[k][i]) / std::max(1.0, std::abs(want[k][i]));
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    EXPECT_LE(worst, tolerance) << what << ", result " << k;
  }
}

std::string name(const Case& c, int64_t rows, int64_t C, DType t, Device d) {
  std::ostringstream out;
  out << (c.centred ? "layer" : "rms") << (c.bias ? ", bias" : "") << ", p " << c.dropout << ", "
      << rows << " × " << C << " " << t << " on " << d;
  return out.str();
}

// s = (1, 2, 4, −3) with a mean of 1, σ² = 6.5: the numbers of the layer norm by hand.
TEST(AddNorm, ByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      auto row = [&](Values v) { return tensor(v, {4}, t, device).requires_grad_(); };
      Tensor x = row({0.5, 1, 2, -2}), y = row({0, 0, 1, 0}), b = row({0.5, 1, 1, -1});
      Tensor gamma = row({1, 0.5, -1, 2}), beta = row({0, 0.125, 0.25, 0.5});
      AddNorm a = add_layer_norm(x, y, b, gamma, beta);
      EXPECT_EQ(a.sum.to_vector(), (Values{1, 2, 4, -3}));
      const double r = 1 / std::sqrt(6.5 + 1e-5), u = 8 * roundoff(t);
      expect_near({a.normal.to_vector()}, {{0, 0.5 * r + 0.125, -3 * r + 0.25, -8 * r + 0.5}}, u,
                  "");
      Tensor ds = tensor({1, -1, 0.5, 2}, {4}, t, device),
             dn = tensor({0.25, -0.75, 1.125, 0.5}, {4}, t, device);
      sum(a.sum * ds + a.normal * dn).backward();
      // x̂ = (0, 1, 3, −4) r, g = γ dn = (0.25, −0.375, −1.125, 1), ⟨g⟩ = −0.0625, ⟨g x̂⟩ = −1.9375 r
      Values normal{0, r, 3 * r, -4 * r}, g{0.25, -0.375, -1.125, 1}, d{1, -1, 0.5, 2}, dx;
      for (size_t i = 0; i < 4; ++i)
        dx.push_back(d[i] + r * (g[i] + 0.0625 + normal[i] * 1.9375 * r));
      for (const Tensor& p : {x, y, b}) expect_near({p.grad().to_vector()}, {dx}, u, "dx");
      expect_near({gamma.grad().to_vector()}, {{0, -0.75 * r, 1.125 * 3 * r, -2 * r}}, u, "dγ");
      EXPECT_EQ(beta.grad().to_vector(), dn.to_vector());
    }
}

// Rows of every kind of kernel, against f64 by separate ops.
TEST(AddNorm, RowsOfEveryLength) {
  PoisonAllocations poison;
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16, DType::f16})
      for (int64_t C : {1, 8, 33, 256, 264, 768, 769, 1024, 1536, 2048, 4096, 8192, 12288})
        for (const Case& c : kCases) {
          const int64_t rows = 5;
          Inputs in(rows, C, t, device);
          auto want = run(in.in(DType::f64, kCpu), c, unfused(t));
          // A row of one entry: n = β for a layer norm, and its gradient 0 is a difference of
          // numbers that r = 1/√ε makes large.
          if (C == 1 && c.centred) continue;
          expect_near(run(in, c, fused), want, tolerance(t, rows, C), name(c, rows, C, t, device));
        }
}

TEST(AddNorm, MoreRowsThanAGridHolds) {
  for (Device device : test_devices())
    for (const Case& c : kCases)
      for (int64_t C : {32, 40, 264}) {
        const int64_t rows = device.is_cuda() ? 30011 : 211;
        Inputs in(rows, C, DType::bf16, device);
        auto want = run(in.in(DType::f64, device), c, unfused(DType::bf16));
        expect_near(run(in, c, fused), want, tolerance(DType::bf16, rows, C),
                    name(c, rows, C, DType::bf16, device));
      }
}

TEST(AddNorm, TwoRunsGiveTheSameBits) {
  for (Device device : test_devices())
    for (const Case& c : kCases)
      for (int64_t C : {33, 768, 2048}) {
        Inputs a(301, C, DType::bf16, device), b(301, C, DType::bf16, device);
        EXPECT_EQ(run(a, c, fused), run(b, c, fused)) << name(c, 301, C, DType::bf16, device);
      }
}

TEST(AddNorm, NoRowsAndNoColumns) {
  for (Device device : test_devices())
    for (const Case& c : kCases)
      for (Shape shape : {Shape{0, 6}, Shape{3, 0}}) {
        auto all = run(Inputs(shape[0], shape[1], DType::f32, device), c, fused);
        EXPECT_TRUE(all[0].empty() && all[1].empty() && all[2].empty());
        for (size_t k = 4; k < all.size(); ++k) EXPECT_EQ(all[k], Values(size_t(shape[1]), 0.0));
      }
}

TEST(AddNorm, StridedInputs) {
  for (Device device : test_devices())
    for (const Case& c : kCases) {
      Inputs dense(6, 40, DType::f32, device), views = dense.in(DType::f32, device);
      for (Tensor* p : {&views.x, &views.y, &views.ds, &views.dn})
        *p = transpose(clone(transpose(*p, 0, 1)), 0, 1).detach();
      EXPECT_FALSE(views.x.is_contiguous());
      EXPECT_EQ(run(views, c, fused), run(dense, c, fused));
    }
}

TEST(AddNorm, SumsAreAddedToWideMainGradients) {
  for (Device device : test_devices())
    for (const Case& c : kCases) {
      if (!c.bias || !c.centred) continue;
      Inputs in(37, 48, DType::bf16, device), wide = in.in(DType::f64, device);
      in.leaves(c), wide.leaves(c);
      for (const Tensor& p : {in.gamma, in.beta, in.bias})
        p.set_main_grad(full({48}, NAN, DType::f32, device));
      for (int i = 0; i < 2; ++i) {
        AddNorm a = fused(in, c), b = unfused(DType::bf16)(wide, c);
        sum(a.sum * in.ds + a.normal * in.dn).backward();
        sum(b.sum * wide.ds + b.normal * wide.dn).backward();
      }
      // Sums of 74 terms up to 10 in f32. (x + (y + b) in f32 is rounded as in f64: no bit falls.)
      for (auto [p, q] :
           {std::pair{in.gamma, wide.gamma}, {in.beta, wide.beta}, {in.bias, wide.bias}})
        expect_near({p.grad().to_vector()}, {q.grad().to_vector()}, 74 * 10 * roundoff(DType::f32),
                    "main gradient");
    }
}

// Both inputs of a sum have the same gradient; without dropout it is one tensor.
TEST(AddNorm, ResidualAndBranchShareTheirGradient) {
  for (Device device : test_devices()) {
    Inputs in(3, 8, DType::f32, device);
    in.leaves({});
    AddNorm a = fused(in, {});
    Tensors d = grad(sum(a.normal * in.dn), {in.x, in.y});
    EXPECT_EQ(d[0].raw(), d[1].raw());
  }
}

// Sequences that share their branch: the same bits as with a copy for each, and its gradient is the sum of
// those of the copies. 4 numbers below 2⁵, summed in f32 in any order, and rounded once to T.
TEST(AddNorm, ABranchCanBeShared) {
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16})
      for (Shape shape :
           {Shape{4, 3, 40}, Shape{4, 700, 768}, Shape{4, 3, 2048}, Shape{4, 3, 33}}) {
        Generator g(5);
        const Shape columns{shape[2]}, table{shape[1], shape[2]};
        auto leaf = [&](const Shape& s) { return normal(s, g, 0, 1, t, device).requires_grad_(); };
        Tensor x = leaf(shape), y = leaf(table), gamma = leaf(columns), beta = leaf(columns);
        Tensor copies = contiguous(expand(y.detach(), shape)).requires_grad_();
        Tensor ds = leaf(shape).detach(), dn = leaf(shape).detach();
        auto run = [&](const Tensor& branch) {
          x.zero_grad(), gamma.zero_grad();
          AddNorm a = add_layer_norm(x, branch, {}, gamma, beta);
          sum(a.sum * ds + a.normal * dn).backward();
          return std::vector<Values>{a.sum.to_vector(), a.normal.to_vector(), x.grad().to_vector(),
                                     gamma.grad().to_vector()};
        };
        EXPECT_EQ(run(y), run(copies));
        Tensor want = sum(cast(to(copies.grad(), kCpu), DType::f64), {0});
        expect_near({y.grad().to_vector()}, {want.to_vector()},
                    4 * 32 * roundoff(DType::f32) + roundoff(t), "dy");
        y.zero_grad();
        y.set_main_grad(full(table, NAN, DType::f32, device));
        run(y);
        expect_near({y.grad().to_vector()}, {want.to_vector()}, 4 * 32 * roundoff(DType::f32),
                    "main gradient");
      }
}

TEST(AddNorm, WrongUseSaysWhatWasExpected) {
  Tensor x = zeros({2, 3}), p = zeros({3});
  EXPECT_THROW(add_rms_norm(x, zeros({3, 2}), {}, p), Error);
  EXPECT_THROW(add_rms_norm(x, x, zeros({2}), p), Error);
  EXPECT_THROW(add_rms_norm(x, x, {}, {}), Error);
  EXPECT_THROW(add_rms_norm(x, x, {}, p, {.dropout = 2}), Error);
  EXPECT_THROW(add_rms_norm(x, p, {}, p, {.dropout = 0.5}), Error);
  EXPECT_THROW(add_layer_norm(x, x, {}, p, p, {.epsilon = -1}), Error);
  try {
    add_layer_norm(x, zeros({2, 3}, DType::f64), {}, p, p);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the branch is (2, 3) f64 for a stream (2, 3) f32"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace gradus
