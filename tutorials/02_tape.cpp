// Tutorial 2: the tape
//
// Every op that touches a tensor with requires_grad writes a node: how to turn the gradient of its
// result into the gradients of its inputs. The nodes point backwards, from results to inputs:
//
//   x ──┐
//      mul ──▶ y        y.grad_fn ──▶ mul ── next_functions[0] ──▶ accumulate_grad(x) ──▶ x.grad
//   w ──┘                              └──── next_functions[1] ──▶ accumulate_grad(w) ──▶ w.grad
//
// backward() walks them. The chain rule says what each node does, and one thing more: where a value
// was used several times its gradient is the SUM over the uses. Hence the order of the walk matters.
//
//   make tutorials && build/cpu/tutorials/02_tape
#include "autograd/apply.h"
#include "autograd/graph.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;

Tensor leaf(double value, const char* name) {
  Tensor x = tensor({value}, {1}, DType::f64).requires_grad_();
  x.set_name(name);
  return x;
}

void one_node() {
  section("One op, one node");
  Tensor x = leaf(3, "x"), w = leaf(5, "w");
  Tensor y = x * w;
  Node& mul = *y.grad_fn();
  expect("the node that made y is a mul", mul.name() == "mul");
  expect("a leaf was made by nobody", x.is_leaf() && x.grad_fn() == nullptr);
  expect("its first edge leads to x", mul.next_functions[0].node->leaf() == x.impl());
  expect("its second edge leads to w", mul.next_functions[1].node->leaf() == w.impl());

  // Nothing hides in backward(): it calls this function of each node.
  Tensors dxw = mul.backward({ones({1}, DType::f64)});
  expect_near("∂y/∂x = w", dxw[0].item(), 5, 0);
  expect_near("∂y/∂w = x", dxw[1].item(), 3, 0);
}

void a_graph() {
  section("Several ops, a graph");
  Tensor x = leaf(0.5, "x"), w = leaf(2, "w");
  Tensor loss = sum(exp(x * w) * x);
  std::cout << graph_text(loss);
  loss.backward();
  // d/dx (x e^{xw}) = e^{xw} (1 + xw),   d/dw = x² e^{xw};   here xw = 1
  const double e = std::exp(1.0);
  expect_near("dx, the sum over both uses of x", x.grad().item(), 2 * e, 1e-14);
  expect_near("dw", w.grad().item(), 0.25 * e, 1e-14);
  expect_error("what was saved is gone now: a second backward must be announced", "retain_graph",
               [&] { loss.backward(); });
}

void several_outputs() {
  section("A node with two outputs");
  Tensor a = tensor({1, 2, 3, 4}, {4}, DType::f64).requires_grad_();
  Tensors halves = split(a, 2, 0);
  expect("both halves come from the same node", halves[0].grad_fn() == halves[1].grad_fn());
  expect("as its outputs 0 and 1", halves[0].output_nr() == 0 && halves[1].output_nr() == 1);
  sum(halves[1] * halves[1]).backward();
  expect_near("the half that nobody used gets the gradient 0, the other 2a", a.grad(),
              tensor({0, 0, 6, 8}, {4}, DType::f64), 0);
}

// An op of our own, which leaves its input as it is and counts how often its backward runs.
int64_t visits = 0;
struct Counted {
  static constexpr auto name = "counted";
  Tensor forward(const Tensor& x) { return x; }
  Tensor backward(const Tensor& dy) {
    ++visits;
    return dy;
  }
};

/// n diamonds on top of each other:   x ──▶ counted ─┬─▶ ·½ ─┐
///                                                   └─▶ ·½ ─┴▶ + ──▶ counted ─┬─▶ …
Tensor diamonds(Tensor h, int n) {
  for (int i = 0; i < n; ++i) {
    h = apply(Counted{}, h);
    h = h * 0.5 + h * 0.5;
  }
  return h;
}

/// Backward as one might write it first: pass the gradient on as soon as it is there.
void plain_recursion(Node& node, const Tensor& dy) {
  Tensors dx = node.backward({dy});
  for (size_t i = 0; i < node.next_functions.size() && i < dx.size(); ++i)
    if (node.next_functions[i]) plain_recursion(*node.next_functions[i].node, dx[i]);
}

void why_order_matters() {
  section("Why order matters: n diamonds");
  say(" n   visits by plain recursion   by backward()");
  bool recursion_doubles = true, engine_is_linear = true, same_gradient = true;
  for (int n : {1, 2, 4, 8, 16}) {
    Tensor x = leaf(1, "x"), y = diamonds(x, n);
    visits = 0;
    NoGrad guard;
    plain_recursion(*y.grad_fn(), ones({1}, DType::f64));
    int64_t recursive = visits;
    same_gradient &= x.grad().item() == 1;
    x.zero_grad();
    visits = 0;
    y.backward();
    std::printf("  %2d %27ld %15ld\n", n, long(recursive), long(visits));
    same_gradient &= x.grad().item() == 1;
    recursion_doubles &= recursive == (int64_t(2) << n) - 2;  // 2 + 4 + … + 2ⁿ
    engine_is_linear &= visits == n;
  }
  expect("both find dx = 1: recursion is right", same_gradient);
  expect("but it enters the k-th diamond from the end 2ᵏ times: 2ⁿ⁺¹ − 2 in all",
         recursion_doubles);
  expect("backward() enters each once: it waits until both gradients are there", engine_is_linear);

  Tensor x = leaf(1, "x");
  diamonds(x, 1000).backward();
  expect_near("a thousand diamonds are no trouble", x.grad().item(), 1, 0);
}

int main() {
  int result =
      lesson("Tutorial 2: the tape", {one_node, a_graph, several_outputs, why_order_matters});
  question(
      "backward() waits at a node until every edge into it has delivered. It counts those edges\n"
      "anew at each backward, and only from nodes that the loss can reach. What would go wrong on\n"
      "y = x·x; z = exp(y); y.backward() if it counted all edges that exist?  "
      "(autograd/engine.cpp)");
  return result;
}
