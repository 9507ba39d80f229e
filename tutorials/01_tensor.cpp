// Tutorial 1: tensor and view
//
// A tensor is a row of numbers in memory and a rule for finding element (i, j, …) in it:
//
//   place(i, j) = offset + i·strides[0] + j·strides[1]
//
// Transposing, slicing and broadcasting change the rule and leave the numbers where they are. That is
// why they cost nothing, and also why writing into one tensor can change another.
//
//   make tutorials && build/cpu/tutorials/01_tensor
#include "autograd/node.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;

//   storage        0 1 2 3 4 5 6 7 8 9 10 11
//   x (3, 4)       a step down is 4 places, a step right is 1
Tensor twelve() { return reshape(arange(12, DType::f32), {3, 4}); }

void rule() {
  section("The rule: offset and strides");
  Tensor x = twelve();
  say("x = ", x, ", strides ", x.strides());
  bool found = true;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 4; ++j)
      found &= x.data<float>()[i * x.strides()[0] + j * x.strides()[1]] == float(4 * i + j);
  expect("the rule finds all twelve elements", found);
}

void views() {
  section("A view: other numbers in the rule, the same numbers in memory");
  Tensor x = twelve();
  Tensor xt = transpose(x, 0, 1);     // x[j][i]: exchange the strides
  Tensor odd = slice(x, 1, 1, 4, 2);  // columns 1 and 3: start one later, step twice as far
  Tensor row = select(x, 0, 2);       // row 2: start 8 later, forget a stride
  for (const Tensor& v : {xt, odd, row}) say(v, ", offset ", v.offset(), ", strides ", v.strides());
  expect("the transpose has strides (1, 4)", xt.strides() == Strides({1, 4}));
  expect("every second column has offset 1 and strides (4, 2)",
         odd.offset() == 1 && odd.strides() == Strides({4, 2}));
  expect("a row has offset 8 and stride 1", row.offset() == 8 && row.strides() == Strides({1}));

  Tensor wide = expand(full({1}, 7), {1000, 1000});
  expect("a million sevens need one number: strides (0, 0)", wide.strides() == Strides({0, 0}));
  expect_near("and their sum is", sum(wide).item(), 7e6, 0);
}

void sharing() {
  section("Sharing: who writes into a view, writes into all of them");
  Tensor x = twelve();
  fill_(select(x, 0, 1), -1);
  say("x = ", x);
  expect_near("row 1 of x was overwritten", sum(select(x, 0, 1)).item(), -4, 0);

  Tensor own = clone(x);
  fill_(x, 0);
  expect_near("a clone has its own memory", sum(select(own, 0, 1)).item(), -4, 0);
}

void contiguity() {
  section("Contiguous: no gaps, last dimension fastest");
  Tensor x = twelve(), xt = transpose(x, 0, 1);
  expect("x is contiguous, its transpose is not", x.is_contiguous() && !xt.is_contiguous());
  Tensor copy = contiguous(xt);
  expect("contiguous() puts the elements in order: a copy", copy.raw() != x.raw());
  expect("what is in order already is not copied", contiguous(x).is_same(x));
  // No pair of strides walks the columns of x one after the other as a single row: 0 4 8 1 5 9 …
  expect("reshape views x but must copy the transpose",
         reshape(x, {12}).raw() == x.raw() && reshape(xt, {12}).raw() != x.raw());
}

void broadcasting() {
  section("Broadcasting: a dimension of size 1 is read again and again, with stride 0");
  Tensor column = tensor({10, 20, 30}, {3, 1}), row = tensor({1, 2, 3, 4}, {4});
  Tensor table = column + row;
  say(table);
  expect_near("row 2, column 3 is", table.at(2 * 4 + 3), 34, 0);
  expect_error("sizes that differ, neither of them 1, do not broadcast", "(3,)", [&] {
    add(row, tensor({1, 2, 3}, {3}));
  });
}

void versions() {
  section("Versions: memory remembers how often it was written");
  Tensor x = twelve(), xt = transpose(x, 0, 1);
  uint32_t before = x.version();
  fill_(xt, 3);
  expect("a write through a view counts for all", x.version() == before + 1);

  // The derivative of x² is 2x: backward needs x as it was. If it was overwritten, a gradient
  // computed from the new values would be wrong without a sign of it. The version is the sign.
  Tensor w = tensor({1, 2, 3}, {3}).requires_grad_();
  Tensor y = sum(w * w);
  {
    NoGrad guard;  // as an optimizer does
    fill_(w, 0);
  }
  expect_error("backward refuses values that were overwritten", "version", [&] { y.backward(); });
}

int main() {
  int result = lesson("Tutorial 1: tensor and view",
                      {rule, views, sharing, contiguity, broadcasting, versions});
  question(
      "expand() reads one number a million times. In backward a million gradients arrive at that\n"
      "one number. What must its gradient be, and which op in ops/ops.h computes it?");
  return result;
}
