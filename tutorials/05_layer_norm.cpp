// Tutorial 5: layer norm by hand
//
// A deep network multiplies many matrices, and whatever is a little too large grows. Layer norm puts
// each row x (C numbers) back to mean 0 and variance 1, then lets the model scale and shift it:
//
//   μ = ⟨x⟩,   r = 1/√(⟨(x − μ)²⟩ + ε),   x̂ = (x − μ) r,   y = γ ⊙ x̂ + β            ⟨·⟩: mean over C
//
// Backward. With g = γ ⊙ dy, the gradient of x̂: x enters x̂ three times, directly, in μ and in r.
//
//   ∂μ/∂x_i = 1/C,   ∂r/∂x_i = −r² x̂_i / C   so that   dx = r (g − ⟨g⟩ − x̂ ⟨g ⊙ x̂⟩)
//   dγ = dy ⊙ x̂,   dβ = dy,   summed over the rows
//
// Here it is computed three ways: in plain C++, by the tape from small ops, by the op layer_norm.
//
//   make tutorials && build/cpu/tutorials/05_layer_norm
#include "autograd/graph.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;

using Row = std::vector<double>;
const double kEpsilon = 1e-5;
const Row x_row = {1, 2, 4, -3}, gamma_row = {1, 0.5, -1, 2}, beta_row = {0, 0.1, 0.2, 0.3};
const Row dy_row = {0.3, -0.7, 1.1, 0.2};  // uneven: see tutorial 4

Tensor row(const Row& values) { return tensor(values, {int64_t(values.size())}, DType::f64); }
Tensor leaf(const Row& values) { return row(values).requires_grad_(); }

struct Gradients {
  Row x, gamma, beta;
};

double mean_of(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / double(a.size());
}
double mean_of(const Row& a) { return mean_of(a, Row(a.size(), 1.0)); }

double rstd(const Row& x) {
  double mu = mean_of(x);
  return 1 / std::sqrt(mean_of(x, x) - mu * mu + kEpsilon);
}
Row normalised(const Row& x) {
  Row x_hat = x;
  for (double& v : x_hat) v = (v - mean_of(x)) * rstd(x);
  return x_hat;
}

/// The formulas above, for one row.
Gradients by_hand(const Row& x, const Row& gamma, const Row& dy) {
  Row x_hat = normalised(x), g = dy, dx = x, dgamma = dy;
  for (size_t i = 0; i < x.size(); ++i) g[i] *= gamma[i], dgamma[i] *= x_hat[i];
  for (size_t i = 0; i < x.size(); ++i)
    dx[i] = rstd(x) * (g[i] - mean_of(g) - x_hat[i] * mean_of(g, x_hat));
  return {dx, dgamma, dy};
}

/// The forward formula in small ops: the tape finds the backward, one op at a time.
Tensor from_small_ops(const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  Tensor centred = x - mean(x, {-1}, true);
  Tensor r = rsqrt(mean(centred * centred, {-1}, true) + kEpsilon);
  return gamma * (centred * r) + beta;
}
/// The same as one op: one pass forward, one pass backward, and less to keep.
Tensor fused(const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  return layer_norm(x, gamma, beta, kEpsilon);
}

void forward() {
  section("Forward");
  Tensor y = fused(row(x_row), row(gamma_row), row(beta_row));
  say("y = ", y);
  Row want = normalised(x_row);
  for (size_t i = 0; i < want.size(); ++i) want[i] = gamma_row[i] * want[i] + beta_row[i];
  expect_near("layer_norm is the formula", y, row(want), 1e-14);
  Tensor moved = fused(row(x_row) * 3 + 100, row(gamma_row), row(beta_row));
  expect_near("3 x + 100 gives the same, but for ε", moved, y, 1e-5);
}

void backward() {
  section("Backward, three ways");
  Gradients want = by_hand(x_row, gamma_row, dy_row);
  say("by hand: dx = ", row(want.x));
  for (auto f : {from_small_ops, fused}) {
    Tensor x = leaf(x_row), gamma = leaf(gamma_row), beta = leaf(beta_row);
    f(x, gamma, beta).backward(row(dy_row));
    say(f == fused ? "the op layer_norm:" : "the tape, from small ops:");
    expect_near("dx", x.grad(), row(want.x), 1e-14);
    expect_near("dγ", gamma.grad(), row(want.gamma), 1e-14);
    expect_near("dβ", beta.grad(), row(want.beta), 0);
  }
}

void what_it_costs() {
  section("What one op saves");
  Tensor x = leaf(x_row), gamma = leaf(gamma_row), beta = leaf(beta_row);
  GraphSize small = graph_size(from_small_ops(x, gamma, beta)),
            one = graph_size(fused(x, gamma, beta));
  say("small ops: ", small.nodes, " nodes keep ", small.saved_bytes, " bytes for backward");
  say("one op:    ", one.nodes, " node keeps ", one.saved_bytes, " bytes");
  expect("nine ops against one", small.nodes == 9 && one.nodes == 1);
  expect("and at most half of the memory", 2 * one.saved_bytes <= small.saved_bytes);
}

void what_must_hold() {
  section("What must hold, whatever the numbers");
  Tensor x = leaf(x_row), dx = grad(fused(x, row(gamma_row), row(beta_row)), {x}, row(dy_row))[0];
  // y does not change when x is shifted: the gradient has no part along (1, 1, 1, 1).
  expect_near("Σ dx", sum(dx).item(), 0, 1e-15);
  // Nor, but for ε, when x̂ is scaled: along x̂ only ε r³ Σ g x̂ is left.
  Row x_hat = normalised(x_row), g = dy_row;
  for (size_t i = 0; i < g.size(); ++i) g[i] *= gamma_row[i];
  double left = kEpsilon * std::pow(rstd(x_row), 3) * 4 * mean_of(g, x_hat);
  expect_near("Σ dx x̂", sum(dx * row(x_hat)).item(), left, 1e-15);
  expect_near("where ε r³ Σ g x̂ is", left, -1.242600e-6, 1e-12);
}

void a_constant_row() {
  section("A row without variance: ε decides");
  Tensor x = leaf({2, 2, 2, 2}), one = row({1, 1, 1, 1});
  Tensor y = fused(x, one, row({0, 0, 0, 0}));
  y.backward(row(dy_row));
  say("dx = ", x.grad());
  expect_near("y = 0", sum(y * y).item(), 0, 0);
  expect_near("dx = (dy − ⟨dy⟩)/√ε: large, but finite", x.grad(),
              (row(dy_row) - mean_of(dy_row)) / std::sqrt(kEpsilon), 1e-9);
}

int main() {
  int result = lesson("Tutorial 5: layer norm by hand",
                      {forward, backward, what_it_costs, what_must_hold, a_constant_row});
  question(
      "RMS norm leaves out μ: x̂ = x r with r = 1/√(⟨x²⟩ + ε). Which of the two corrections in dx\n"
      "remains, and which of the two sums above is still zero? Check it with rms_norm.");
  return result;
}
