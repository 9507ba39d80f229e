// Tutorial 14: sequence parallel
//
// Column and row parallel layers (tutorial 13) cut what is between them. What is outside, the norms, dropout
// and the residual stream, every rank computes as a whole and keeps for backward: n times the same. But it
// works on each token by itself, so it can be cut along the tokens [Korthikanti et al. 2022]:
//
//   tokens cut          heads or columns cut         tokens cut
//   ───────────         ────────────────────         ──────────
//   x_r ─▶ norm ─▶ g ─▶ column ─▶ gelu ─▶ row ─▶ ḡ ─▶ dropout ─▶ + x_r
//
//   g: gathers the tokens, backward reduce-scatter       ḡ: reduce-scatter, backward gathers
//
// An all-reduce is a reduce-scatter and a gather, so it costs no more; and 1/n of the memory.
//
//   make tutorials && build/cpu/tutorials/14_sequence_parallel
#include "nn/norm.h"
#include "parallel/collectives.h"
#include "parallel/run_ranks.h"
#include "parallel/tensor_parallel.h"
#include "train/machine.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::parallel;

// ---- A block's second half over 8 tokens of width 6, and an uneven cotangent.
constexpr int64_t kTokens = 8, kWidth = 6;
const double kDropout = 0.25;
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

  explicit Half(const TensorParallel& tp) : tp(tp), up(kWidth, 16, tp), down(16, kWidth, tp) {
    cast(DType::f64);
    nn::initialize(*this, 7);
  }
  /// x (tokens, width): where tokens are cut, this rank's.
  Tensor operator()(const Tensor& x, uint64_t first_element) const {
    const Tensor y = down(gelu(up(norm(x))));
    return x + dropout(y, kDropout, kMask, {.first = first_element});
  }
  void fields(nn::Fields& f) override { f("norm", norm)("up", up)("down", down); }
};

const double kRounding = 1e-13;  // sums of 16 products in another order

struct Results {
  Tensor y, dx, dgamma, dup;
  bool is_partial;  // the bias of the row layer
};
Results run(const TensorParallel& tp, bool mask_by_global_element = true) {
  const Half half(tp);
  const int64_t n = tp.splits_tokens() ? tp.ranks() : 1, rows = kTokens / n,
                first = n > 1 ? rows * tp.rank() : 0;
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

void two_halves_of_a_sum() {
  section("An all-reduce is a reduce-scatter, then a gather");
  run_ranks(4, [](Communicator world) {
    const Tensor x = drawn({8, 3}, uint64_t(world.rank()));
    const Tensor part = world.reduce_scatter(x);  // 2 of the 8 rows of the sum
    const Tensor sum = world.all_reduce(x), gathered = world.all_gather(part);
    if (world.rank() == 0) expect_near("the same sum", gathered, sum, 0);
  });
}

void the_same_numbers() {
  section("Tokens cut over 2 and 4 ranks");
  const Results want = run({});
  for (int n : {2, 4}) {
    const auto got = on_ranks(n, true);
    expect_near(sentence(n, " ranks: y, token by token"), joined(got, &Results::y), want.y,
                kRounding);
    expect_near("dx", joined(got, &Results::dx), want.dx, kRounding);
    expect_near("the gradient of a column layer, row by row", joined(got, &Results::dup), want.dup,
                kRounding);
  }
}

// ---- γ is whole on every rank, and each sees the gradient of its tokens only: a partial gradient.
void partial_gradients() {
  section("What is whole out there has partial gradients");
  const Results want = run({});
  const auto cut = on_ranks(2, true), whole = on_ranks(2, false);
  expect_near("without sequence parallel each rank has all of dγ", whole[0].dgamma, want.dgamma,
              kRounding);
  const double off = max(abs(cut[0].dgamma - want.dgamma)).item();
  say("with it, rank 0 lacks up to ", off);
  expect("which is no rounding: the copies of γ would part", off > 0.1);
  expect_near("the sum over the ranks is dγ", cut[0].dgamma + cut[1].dgamma, want.dgamma,
              kRounding);
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

// ---- Memory: what is kept for backward, in numbers for a layer of a GPT with B T = s tokens and width h.
void memory() {
  section("What it is for");
  // Kept as wholes: 2 inputs of norms, 2 inputs of column layers, 2 masked branches (16 bits each).
  // Cut by tensor parallel: q k v, what the heads found, the two sides of gelu: 3 + 1 + 4 + 4.
  const double outside = 6, inside = 12;  // times s h
  const auto each_rank = [&](double n, bool cut) {
    return (cut ? outside / n : outside) + inside / n;
  };
  for (int n : {1, 2, 4, 8})
    std::printf("  %d ranks   tensor parallel %5.2f s h   and sequence parallel %5.2f s h\n", n,
                each_rank(n, false), each_rank(n, true));
  expect("tensor parallel alone never gets below what is outside",
         each_rank(1e9, false) >= outside);
  expect_near("with tokens cut, 8 ranks keep an eighth", each_rank(8, true) * 8, each_rank(1, true),
              1e-12);
}

int main() {
  train::use_threads(1);  // the ranks are threads themselves
  int result = lesson("Tutorial 14: sequence parallel",
                      {two_halves_of_a_sum, the_same_numbers, partial_gradients, masks, memory});
  question(
      "The gather g is needed again in backward, for the gradient of W: who keeps its result, and "
      "what does\n"
      "it cost not to?  And why is the bias of the row layer added after ḡ, and its gradient "
      "partial?");
  return result;
}
