// Tutorial 14: sequence parallel
//
// Column and row parallel layers (tutorial 13) cut what is between them. What is outside, the norms, dropout
// and the residual stream, every rank computes as a whole and keeps for backward: n times the same. But it
// works on each token by itself, so it can be cut along the tokens [Korthikanti et al. 2022]:
//
//   tokens cut        heads or columns cut        tokens cut
//   ───────────         ────────────────────         ──────────
//   x_r ─▶ norm ─▶ g ─▶ column ─▶ gelu ─▶ row ─▶ ḡ ─▶ dropout ─▶ + x_r
//
//   g: gathers the tokens, backward reduce-scatter       ḡ: reduce-scatter, backward gathers
//
// An all-reduce is a reduce-scatter and a gather, so it costs no more; and 1/n of the memory.
//
//   make tutorials && build/cpu/tutorials/14_sequence_parallel
#include "core/allocator.h"
#include "nn/norm.h"
#include "parallel/collectives.h"
#include "parallel/run_ranks.h"
#include "parallel/tensor_parallel.h"
#include "train/machine.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::parallel;

// ---- A block's second half over 64 tokens of width 8, and an uneven cotangent.
constexpr int64_t kTokens = 64, kWidth = 8;
const Philox kMask{5, 0};  // all ranks of a step know it

Tensor drawn(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return normal(shape, g, 0, 1, DType::f64);
}
const Tensor X = drawn({kTokens, kWidth}, 1), c = drawn({kTokens, kWidth}, 2);

struct Half final : nn::Module {
  TensorParallel tp;
  nn::LayerNorm norm{kWidth};
  ColumnLinear up;
  RowLinear down;

  explicit Half(const TensorParallel& tp) : tp(tp), up(kWidth, 32, tp), down(32, kWidth, tp) {
    cast(DType::f64);
    nn::initialize(*this, 7);
  }
  /// x (tokens, width): where tokens are cut, this rank's.
  Tensor operator()(const Tensor& x, uint64_t first_element) const {
    const Tensor y = down(gelu(up(norm(x))));
    return x + dropout(y, 0.25, kMask, {.first = first_element});
  }
  void fields(nn::Fields& f) override { f("norm", norm)("up", up)("down", down); }
};

const double kTiny = 1e-12;  // sums of 64 products of size 10 in another order

struct Results {
  Tensor y, dx, dgamma, dup;
  bool is_partial;  // the bias of the row layer
};
Results run(const TensorParallel& tp, bool mask_by_global_element = true) {
  const Half half(tp);
  const int64_t rows = tp.splits_tokens() ? kTokens / tp.ranks() : kTokens;
  const int64_t first = tp.splits_tokens() ? rows * tp.rank() : 0;
  const auto mine = [&](const Tensor& t) { return clone(slice(t, 0, first, first + rows)); };
  const Tensor x = mine(X).requires_grad_();
  const Tensor y = half(x, mask_by_global_element ? uint64_t(first * kWidth) : 0);
  Tensors d = grad(sum(y * mine(c)), {x, half.norm.weight, half.up.weight});
  return {y.detach(), d[0], d[1], d[2], half.down.bias.shard.partial_grad};
}
std::vector<Results> on_ranks(int n, bool sequence, bool mask_by_global_element = true) {
  std::vector<Results> all(static_cast<size_t>(n));
  run_ranks(n, [&](Communicator world) {
    all[size_t(world.rank())] = run({world, sequence}, mask_by_global_element);
  });
  return all;
}
Tensor joined(const std::vector<Results>& all, Tensor Results::*what) {
  Tensors parts;
  for (const Results& r : all) parts.push_back(r.*what);
  return cat(parts, 0);
}

void the_same_numbers() {
  section("Tokens cut over 2 and 4 ranks");
  const Results want = run({});
  for (int n : {2, 4}) {
    const auto got = on_ranks(n, true);
    expect_near(sentence(n, " ranks: y, token by token"), joined(got, &Results::y), want.y, kTiny);
    expect_near("dx", joined(got, &Results::dx), want.dx, kTiny);
    expect_near("the gradient of a column layer, row by row", joined(got, &Results::dup), want.dup,
                kTiny);
  }
}

// ---- γ is whole on every rank, and each sees the gradient of its tokens only: a partial gradient.
void partial_gradients() {
  section("What is whole out there has partial gradients");
  const Results want = run({});
  const auto cut = on_ranks(2, true), whole = on_ranks(2, false);
  expect_near("without sequence parallel each rank has all of dγ", whole[0].dgamma, want.dgamma,
              kTiny);
  const double off = max(abs(cut[0].dgamma - want.dgamma)).item();
  say("with it, rank 0 lacks up to ", off);
  expect("which is no rounding: the copies of γ would part", off > 0.1);
  expect_near("the sum over the ranks is dγ", cut[0].dgamma + cut[1].dgamma, want.dgamma, kTiny);
  expect("layers mark such parameters, and the end of a step sums them: the bias after ḡ is one",
         cut[0].is_partial && !whole[0].is_partial);
}

// ---- Dropout. A mask that is drawn by the index of an element in this rank's part is the same on all ranks.
void masks() {
  section("A mask belongs to the token, not to the rank");
  const Tensor one = ones({kTokens / 2, kWidth}, DType::f64);
  const auto mask = [&](uint64_t first) { return dropout(one, 0.5, kMask, {.first = first}); };
  const Tensor whole = dropout(ones({kTokens, kWidth}, DType::f64), 0.5, kMask);
  expect_near("keyed by the global element, the parts of a mask are those of the whole",
              cat({mask(0), mask(uint64_t(kTokens / 2 * kWidth))}, 0), whole, 0);
  const auto local = on_ranks(2, true, false);
  const double off = max(abs(joined(local, &Results::y) - run({}).y)).item();
  say("keyed by the local one, y differs by up to ", off);
  expect("no crash, and no test without dropout sees it", off > 0.1);
}

// ---- Memory. After a forward, all that backward will want is alive: on all ranks together, in numbers of f64.
double kept(int n, bool sequence) {
  double numbers = 0;
  run_ranks(n, [&](Communicator world) {
    const Half half({world, sequence});
    const Tensor x = drawn({sequence ? kTokens / n : kTokens, kWidth}, 1).requires_grad_();
    world.barrier();
    const int64_t before = memory_stats(kCpu).live;
    world.barrier();
    const Tensor y = half(x, 0);
    world.barrier();
    if (world.rank() == 0) numbers = double(memory_stats(kCpu).live - before) / 8;
    world.barrier();
  });
  return numbers;
}

void memory() {
  section("What it is for");
  const double one = kept(1, false), columns_cut = kept(4, false), both_cut = kept(4, true);
  say("kept for backward by one rank: ", one, "; by four: ", columns_cut, ", with tokens cut ",
      both_cut);
  expect("without, four ranks keep much of it four times", columns_cut > 1.5 * one);
  expect_near("with tokens cut, four keep what one would", both_cut / one, 1, 0.1);
}

int main() {
  train::use_threads(1);  // the ranks are threads themselves
  int result = lesson("Tutorial 14: sequence parallel",
                      {the_same_numbers, partial_gradients, masks, memory});
  question(
      "g is gathered once more in backward, for dW. What would it cost not to?  And why is the "
      "bias\n"
      "of the row layer added after ḡ, and its gradient partial?");
  return result;
}
