// Tutorial 3: learning XOR
//
// x₁ xor x₂ is 1 where exactly one of the two is. No line has (0,1) and (1,0) on one side and (0,0) and
// (1,1) on the other; two layers with something bent between them do it. This is the smallest problem
// that needs all that training needs: a module, a loss, backward, an optimizer.
//
//   h = tanh(W₁ x + b₁),   ŷ = W₂ h + b₂,   L = mean (ŷ − y)²
//
//   make tutorials && build/cpu/tutorials/03_xor
#include "autograd/node.h"
#include "nn/linear.h"
#include "nn/summary.h"
#include "optim/sgd.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;

// A model is a struct: its layers are members, its forward pass is operator(), fields() lists the members.
struct Line final : nn::Module {
  nn::Linear layer{2, 1};
  Tensor operator()(const Tensor& x) const { return layer(x); }
  void fields(nn::Fields& f) override { f("layer", layer); }
};
struct Mlp final : nn::Module {
  nn::Linear up{2, 8}, down{8, 1};
  Tensor operator()(const Tensor& x) const { return down(tanh(up(x))); }
  void fields(nn::Fields& f) override { f("up", up)("down", down); }
};

/// The four points of the XOR table, one a row.
struct Table {
  Tensor x = tensor({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  Tensor y = tensor({0, 1, 1, 0}, {4, 1});
};

/// Forward, backward, step, forget the gradients. Returns the last loss.
template <class Model>
double train(Model& model, const Table& table) {
  nn::initialize(model, 1);
  optim::Sgd optimizer(model);
  double last = 0;
  for (int step = 0; step <= 1000; ++step) {
    Tensor loss = mse_loss(model(table.x), table.y);
    loss.backward();
    optimizer.step(0.1);
    optimizer.zero_grad();
    last = loss.item();
    if (step % 200 == 0) std::printf("  step %4d   loss %.2e\n", step, last);
  }
  return last;
}

void a_line() {
  section("A line: 2 → 1");
  Line model;
  Table table;
  expect_near("the best that a line can do", train(model, table), 0.25, 1e-4);
  NoGrad guard;
  expect_near("is to say ½ everywhere", model(table.x), full({4, 1}, 0.5), 0.01);
}

void two_layers() {
  section("Two layers: 2 → 8 → 1");
  Mlp model;
  Table table;
  double loss = train(model, table);
  std::cout << nn::summary(model);
  expect("the loss falls below 0.001", loss < 0.001);
  NoGrad guard;  // nobody will ask for gradients: record nothing
  Tensor guess = model(table.x);
  for (int i = 0; i < 4; ++i)
    std::printf("  %.0f xor %.0f = %.3f\n", table.x.at(2 * i), table.x.at(2 * i + 1), guess.at(i));
  expect_near("all four points are learned", guess, table.y, 0.1);
}

int main() {
  int result = lesson("Tutorial 3: learning XOR", {a_line, two_layers});
  question(
      "Why is the loss of the line exactly ¼? And if tanh is taken out of Mlp, what can W₂ W₁ x "
      "say\n"
      "that a single matrix cannot?");
  return result;
}
