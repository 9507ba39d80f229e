// Tutorial 8: from SGD to AdamW in one narrow valley
//
// Near a minimum a loss is a bowl, and a narrow one is hard:
//
//   L(x, y) = ½ (x² + 25 y²),     g = (x, 25 y)        curvatures 1 and 25, condition number κ = 25
//
// Along an axis of curvature λ, plain descent multiplies what is left by 1 − ηλ in each step. η must
// stay below 2/25 or y diverges, and then x creeps. Each rule below is one answer to that:
//
//   momentum   v ← μ v + g,  θ ← θ − η v              what points to and fro cancels, the rest adds up
//   Adam       θ ← θ − η m̂/(√v̂ + ε)                   each axis by its own size: about η a step
//   AdamW      the same, and θ ← θ (1 − ηλ) beside it
//
// The program leaves a picture of the paths beside itself, as SVG.
//   make tutorials && build/cpu/tutorials/08_optimizers
#include <fstream>

#include "optim/adam.h"
#include "optim/sgd.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::optim;

struct Path {
  std::string name;
  std::vector<double> x, y;
  double loss(size_t t) const { return 0.5 * (x[t] * x[t] + 25 * y[t] * y[t]); }
  /// Steps until the loss is below a thousandth of the first.
  size_t steps_down() const {
    size_t t = 0;
    while (t + 1 < x.size() && loss(t) > 1e-3 * loss(0)) ++t;
    return t;
  }
};

/// From (4, 1), as many steps as asked for. `Rule` is an optimizer and `o` its options.
template <class Rule, class Options>
Path descend(const char* name, Options o, double lr, int steps = 120) {
  Tensor theta = tensor({4, 1}, {2}, DType::f64).requires_grad_();
  const Tensor curvature = tensor({1, 25}, {2}, DType::f64);  // the diagonal of the Hessian
  Rule rule(default_groups({theta}), o);
  Path path{name, {4}, {1}};
  for (int t = 0; t < steps; ++t) {
    rule.zero_grad();
    (0.5 * sum(curvature * theta * theta)).backward();
    rule.step(lr);
    path.x.push_back(theta.at(0)), path.y.push_back(theta.at(1));
  }
  return path;
}

std::string picture_file;
std::vector<Path> paths;

void plain_descent() {
  section("SGD: the steepest axis sets the rate, the flattest one waits");
  const Path p = descend<Sgd>("SGD", SgdOptions{}, 0.07);
  expect_near("x after 10 steps is 4 (1 − 0.07)¹⁰", p.x[10], 4 * std::pow(1 - 0.07, 10), 1e-12);
  expect_near("y after 10 steps is (1 − 0.07 · 25)¹⁰", p.y[10], std::pow(1 - 1.75, 10), 1e-12);
  expect("y jumps from side to side", p.y[1] < 0 && p.y[2] > 0);
  const Path above = descend<Sgd>("too fast", SgdOptions{}, 2.0 / 25 * 1.01, 200);
  expect("just above η = 2/25 it diverges", std::abs(above.y.back()) > 10);
  paths.push_back(p);
}

void with_momentum() {
  section("Momentum: a heavy ball");
  // The best η and μ for curvatures 1 and κ:  μ = ((√κ − 1)/(√κ + 1))²,  η = (2/(√κ + 1))².
  const double mu = 16.0 / 36, lr = 4.0 / 36;
  const Path p = descend<Sgd>("momentum", SgdOptions{.momentum = mu}, lr);
  const SgdOptions ahead{.momentum = mu, .nesterov = true};
  const Path nesterov = descend<Sgd>("Nesterov", ahead, 0.04);
  say("steps: ", p.steps_down(), " with momentum, ", nesterov.steps_down(), " with Nesterov's");
  expect("momentum needs half of SGD's steps", 2 * p.steps_down() < paths[0].steps_down());
  expect_near("after 100 steps the error is about 100 √μ¹⁰⁰", std::log10(std::abs(p.x[100])),
              std::log10(100 * std::pow(mu, 50)), 1);
  paths.push_back(p), paths.push_back(nesterov);
}

void adam() {
  section("Adam: the size of a gradient does not matter, its consistency does");
  const AdamOptions none{.weight_decay = 0};
  const Path p = descend<Adam>("Adam", none, 0.2);
  expect_near("the first step along x is η = 0.2 (gradient 4)", 4 - p.x[1], 0.2, 1e-8);
  expect_near("the first step along y is η as well (gradient 25)", 1 - p.y[1], 0.2, 1e-8);
  Tensor a = ones({1}, DType::f64).requires_grad_(), b = ones({1}, DType::f64).requires_grad_();
  Adam small(default_groups({a}), none), large(default_groups({b}), none);
  for (int t = 0; t < 10; ++t) {
    small.zero_grad(), large.zero_grad();
    (1e-3 * sum(a * a)).backward(), (1e3 * sum(b * b)).backward();
    small.step(0.01), large.step(0.01);
  }
  expect_near("a loss that is a million times as large moves as far", a.at(0), b.at(0), 1e-6);
  paths.push_back(p);
}

void adamw() {
  section("AdamW: decay that a large gradient cannot hide");
  // Two weights of no use: gradients of ±100 and of ±0.01 in turn.
  auto after = [](Decay decay) {
    Tensor w = tensor({1, 1}, {2}, DType::f64).requires_grad_();
    Adam rule(default_groups({w}), {.weight_decay = 0.1, .decay = decay});
    rule.flat().groups()[0].weight_decay_scale = 1;  // vectors are not decayed by default
    for (int t = 0; t < 1000; ++t) {
      rule.zero_grad();
      const double sign = t % 2 ? 1 : -1;
      sum(w * tensor({100 * sign, 0.01 * sign}, {2}, DType::f64)).backward();
      rule.step(1e-2);
    }
    return w.to_vector();
  };
  const auto inside = after(Decay::through_gradient), beside = after(Decay::decoupled);
  say("through the gradient: ", inside[0], ", ", inside[1], "; beside: ", beside[0], ", ",
      beside[1]);
  expect("inside g, the decay is divided by √v̂: the noisy weight keeps its size", inside[0] > 0.9);
  expect("and the quiet one collapses", std::abs(inside[1]) < 0.1);
  expect_near("beside it, both shrink by (1 − ηλ) a step", beside[0], beside[1], 1e-2);
  expect_near("which is (1 − 0.001)¹⁰⁰⁰ = 0.37", beside[1], std::pow(1 - 1e-3, 1000), 1e-2);
}

void picture() {
  section("The picture");
  std::ofstream svg(picture_file);
  svg << R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="-5 -2.2 10 4.4" width="1000" height="440"
    font-family="sans-serif" font-size="0.22"><rect x="-5" y="-2.2" width="10" height="4.4" fill="white"/>
    <g fill="none" stroke="#ddd" stroke-width="0.02">)";
  for (double r : {0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.4})  // L = ½ r²
    svg << "<ellipse rx='" << r << "' ry='" << r / 5 << "'/>\n";
  svg << "</g>\n";
  const char* colours[] = {"#d62728", "#1f77b4", "#17becf", "#2ca02c"};
  for (size_t k = 0; k < paths.size(); ++k) {
    svg << "<polyline fill='none' stroke-width='0.03' stroke='" << colours[k] << "' points='";
    for (size_t t = 0; t < 60; ++t) svg << paths[k].x[t] << ',' << -paths[k].y[t] << ' ';
    svg << "'/>\n<text x='-4.8' y='" << 1.2 + 0.28 * double(k) << "' fill='" << colours[k] << "'>"
        << paths[k].name << ": " << paths[k].steps_down() << " steps</text>\n";
  }
  svg << "</svg>\n";
  expect("it is written beside the program", bool(svg.flush()));
}

int main(int, char** argv) {
  picture_file = std::string(argv[0]) + ".svg";
  int result = lesson("Tutorial 8: from SGD to AdamW in one narrow valley",
                      {plain_descent, with_momentum, adam, adamw, picture});
  question(
      "Adam divides x and y by different numbers. Turn the valley by 45°: which of these rules do\n"
      "not notice, and what becomes of Adam's advantage?");
  return result;
}
