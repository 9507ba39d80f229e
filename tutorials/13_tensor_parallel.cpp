// Tutorial 13: column and row parallel
//
// When a matrix is too large for one rank, cut it. An MLP has two, and there are two ways to cut [Shoeybi
// et al. 2019]:
//
//   H = gelu(X W₁ᵀ)     W₁ by rows: each rank makes some columns of H, and gelu works on each by itself
//   Y = H W₂ᵀ           W₂ by columns: each rank multiplies the columns it has; the products are summed
//
//   X ──┬──▶ X W₁₀ᵀ ─▶ gelu ─▶ H₀ W₂₀ᵀ ──┐                 f: copies; backward Σ
//     f │                                 Σ ──▶ Y        Σ: sums;   backward copies
//       └──▶ X W₁₁ᵀ ─▶ gelu ─▶ H₁ W₂₁ᵀ ──┘
//
// Between f and Σ nobody talks. Forward costs one sum, backward another: that of dX.
//
//   make tutorials && build/cpu/tutorials/13_tensor_parallel
#include "autograd/apply.h"
#include "nn/linear.h"
#include "parallel/run_ranks.h"
#include "parallel/tensor_parallel.h"
#include "train/machine.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::parallel;

// ---- The MLP in one piece: 6 rows of 4 numbers, 8 in the middle. c is an uneven cotangent of Y.
Tensor drawn(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return normal(shape, g, 0, 1, DType::f64).requires_grad_();
}
const Tensor X = drawn({6, 4}, 1), W1 = drawn({8, 4}, 2), W2 = drawn({4, 8}, 3), b = drawn({4}, 4);
const Tensor c = drawn({6, 4}, 5).detach();

const Tensor Y = linear(gelu(linear(X, W1)), W2, b);
const Tensors d = grad(sum(Y * c), {X, W1, W2, b});  // of these, in this order

const double kTiny = 1e-13;  // sums of 8 products of size 10 in another order

/// This rank's half of x, as a leaf.
Tensor half(const Tensor& x, int dim, int rank) {
  const int64_t n = x.size(dim) / 2;
  return clone(slice(x.detach(), dim, rank * n, rank * n + n)).requires_grad_();
}

void which_way() {
  section("Why this way round");
  const Tensor h0 = linear(X, half(W1, 0, 0)), h1 = linear(X, half(W1, 0, 1));
  expect_near("rows of W₁ make columns of H: gelu of the halves are the halves of gelu",
              cat({gelu(h0), gelu(h1)}, 1), gelu(linear(X, W1)), kTiny);
  const Tensor p0 = linear(half(X, 1, 0), half(W1, 1, 0)),
               p1 = linear(half(X, 1, 1), half(W1, 1, 1));
  expect_near("columns of W₁ make parts of a sum", p0 + p1, linear(X, W1), kTiny);
  const double off = max(abs(gelu(p0) + gelu(p1) - gelu(linear(X, W1)))).item();
  say("gelu of a sum is not the sum of gelus: ", off, " between them");
  expect("so that a sum over the ranks would be needed before gelu, too", off > 0.1);
}

// ---- f by hand. What is the same on all ranks and used by each for other work has a gradient on each, and
// dX is their sum. (The library's is copy_to, in parallel/collectives.h.)
struct Copies {
  static constexpr auto name = "copies";
  Communicator group{};
  bool sums = true;
  Tensor forward(const Tensor& x) { return x; }
  Tensor backward(const Tensor& dy) { return sums ? group.all_reduce(dy) : dy; }
};
struct Sums {
  static constexpr auto name = "sums";
  Communicator group{};
  Tensor forward(const Tensor& x) { return group.all_reduce(x); }
  Tensor backward(const Tensor& dy) { return dy; }
};

struct Results {
  Tensor y;
  Tensors d;  // of X, this rank's W₁, its W₂, and b
};
/// Two ranks, each with its halves.
std::vector<Results> on_two_ranks(bool f_sums, bool bias_at_the_end = true) {
  std::vector<Results> results(2);
  run_ranks(2, [&](Communicator world) {
    const int r = world.rank();
    const Tensor x = clone(X.detach()).requires_grad_(), bias = clone(b.detach()).requires_grad_();
    const Tensor w1 = half(W1, 0, r), w2 = half(W2, 1, r);
    const Tensor in = apply(Copies{.group = world, .sums = f_sums}, x);
    const Tensor part = linear(gelu(linear(in, w1)), w2, bias_at_the_end ? Tensor() : bias);
    Tensor y = apply(Sums{.group = world}, part);
    if (bias_at_the_end) y = y + bias;
    results[size_t(r)] = {y.detach(), grad(sum(y * c), {x, w1, w2, bias})};
  });
  return results;
}

void by_hand() {
  section("Two ranks, by hand");
  const auto r = on_two_ranks(true);
  expect_near("Y", r[0].y, Y, kTiny);
  expect_near("dX, on each rank all of it", r[1].d[0], d[0], kTiny);
  expect_near("dW₁, a half of the rows on each", cat({r[0].d[1], r[1].d[1]}, 0), d[1], kTiny);
  expect_near("dW₂, a half of the columns on each", cat({r[0].d[2], r[1].d[2]}, 1), d[2], kTiny);
  expect_near("db, on each rank all of it", r[0].d[3], d[3], kTiny);
}

void two_bugs() {
  section("Two bugs that do not crash");
  const auto no_sum = on_two_ranks(false);
  expect_near("without the sum in f's backward dW₁ is right", no_sum[0].d[1], half(d[1], 0, 0),
              kTiny);
  expect_near("dX is a half of a sum", no_sum[0].d[0] + no_sum[1].d[0], d[0], kTiny);
  const double apart = max(abs(no_sum[0].d[0] - no_sum[1].d[0])).item();
  expect(
      sentence("and the ranks differ by up to ", apart, ": all layers below learn something else"),
      apart > 0.1);
  const auto early = on_two_ranks(true, false);
  expect_near("a bias that each rank adds before the sum is added twice", early[0].y, Y + b, kTiny);
}

void the_library() {
  section("The library: the dense layers, and f and Σ in between");
  nn::Linear up(4, 8), down(8, 4);
  up.bias.init = down.bias.init = nn::init::zeros();  // as in layers that are cut
  const auto start = [](auto& first, auto& second) {
    first.cast(DType::f64), second.cast(DType::f64);
    nn::initialize(first, 7), nn::initialize(second, 8);
  };
  start(up, down);
  const Tensor want = down(gelu(up(X))), dW = grad(sum(want * c), {up.weight})[0];
  for (int n : {1, 2, 4}) {
    const auto ranks = size_t(n);
    Tensors y(ranks), dw(ranks), w(ranks);
    run_ranks(n, [&](Communicator world) {
      const auto r = size_t(world.rank());
      ColumnLinear first(4, 8, {world});
      RowLinear second(8, 4, {world});
      start(first, second);
      y[r] = second(gelu(first(X.detach())));
      dw[r] = grad(sum(y[r] * c), {first.weight})[0], w[r] = first.weight.detach();
    });
    expect_near(sentence(n, " ranks: each draws its rows of the matrix that one draws"), cat(w, 0),
                up.weight, 0);
    expect_near("they yield the same Y", y[0], want, kTiny);
    expect_near("and side by side the same gradient", cat(dw, 0), dW, kTiny);
  }
}

int main() {
  train::use_threads(1);  // the ranks are threads themselves
  int result =
      lesson("Tutorial 13: column and row parallel", {which_way, by_hand, two_bugs, the_library});
  question(
      "Attention is cut by heads. If the matrix of queries, keys and values has its rows in the\n"
      "order q₀ q₁ k₀ k₁ v₀ v₁, what does rank 0 of 2 get? And of SwiGLU's, gate over up?\n"
      "(Shard in nn/parameter.h)");
  return result;
}
