#pragma once
// A small model and a step of it at any layout, for tutorial 16. Nine bugs are built in, each in one line.
//
//   ids ─▶ E ─┬─▶ norm γ ─▶ f ─▶ W₁, b₁ ─▶ gelu ─▶ W₂ ─▶ Σ ─▶ + b₂ ─▶ dropout ─▶ + ─▶ 1/N Σ w |y − t|²
//             └──────────────────────────────────────────────────────────────────┘
#include "ops/ops.h"
#include "parallel/collectives.h"
#include "parallel/process_grid.h"

namespace gradus::tutorial {

using namespace gradus::parallel;

struct Setting {
  int tp, dp;
  bool tokens_cut;
  int micro_batches, bug = 0;
};

// ---- Data: 8 samples of 3 tokens, weighted by w; and parameters, by the axis that tp cuts.
inline constexpr int64_t kSamples = 8, kLength = 3, kTokens = kSamples * kLength, C = 4;
struct Whole {
  const char* name;
  Shape shape;
  int cut;  // −1: every rank has all of it
};
inline const Whole kParameters[] = {{"E", {5, C}, -1}, {"γ", {C}, -1},    {"W₁", {6, C}, 0},
                                    {"b₁", {6}, 0},    {"W₂", {C, 6}, 1}, {"b₂", {C}, -1}};
inline Tensor drawn(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return normal(shape, g, 0, 1, DType::f64);
}
inline const Tensor ids = cast(clamp(abs(drawn({kTokens}, 1)) * 2, 0, 4), DType::i32);
inline const Philox kMask{3, 0};
inline const Tensor t = drawn({kTokens, C}, 2), w = clamp(drawn({kTokens, 1}, 3) + 1, 0, 1);

struct Rank {
  Setting s;
  Communicator tp, dp;
  Tensors p{};  // its parts of the parameters
  bool planted(int bug) const { return s.bug == bug; }

  void draw_parameters() {
    for (size_t i = 0; i < 6; ++i) {
      const int cut = kParameters[i].cut,
                part = planted(8) && i == 4 ? s.tp - 1 - tp.rank() : tp.rank();
      const Tensor whole = drawn(kParameters[i].shape, 10 + i);
      const Tensor mine = cut < 0 ? whole : split(whole, s.tp, cut)[size_t(part)];
      p.push_back(clone(mine).requires_grad_());
    }
  }
  /// Of the tokens from `first` on, `n` of them here, the loss in N parts.
  Tensor loss(int64_t first, int64_t n, const Tensor& N) const {
    const auto here = [&](const Tensor& x) { return slice(x, 0, first, first + n); };
    const Tensor h = embedding(p[0], here(ids)), x = layer_norm(h, p[1], {});
    const Consumer consumer = planted(5) ? Consumer::replicated : Consumer::split;
    const Tensor copied = planted(3) ? x : copy_to(tp, x);
    const Tensor f = s.tokens_cut ? gather_from(tp, x, 0, consumer) : copied;
    const Tensor part = linear(gelu(linear(f, p[2], p[3])), p[4], planted(4) ? p[5] : Tensor());
    const Tensor all = s.tokens_cut ? reduce_scatter(tp, part, 0) : reduce_from(tp, part);
    const Tensor branch = planted(4) ? all : all + p[5];
    const uint64_t element = planted(9) ? 0 : uint64_t(first * C);
    const Tensor error = h + dropout(branch, 0.2, kMask, {.first = element}) - here(t);
    return sum(here(w) * error * error) / N;
  }
  void backward() const {
    const int64_t tokens = kTokens / (s.dp * s.micro_batches),
                  n = s.tokens_cut ? tokens / s.tp : tokens;
    const auto first = [&](int m) { return (m * s.dp + dp.rank()) * tokens; };
    Tensor mine = zeros({}, DType::f64);  // weight
    for (int m = 0; m < s.micro_batches; ++m)
      mine = mine + sum(slice(w, 0, first(m), first(m) + tokens));
    const Tensor N = planted(1) ? mine * double(s.dp) : dp.all_reduce(mine);
    for (int m = 0; m < s.micro_batches; ++m)
      loss(first(m) + (s.tokens_cut ? n * tp.rank() : 0), n, N).backward();
  }
  /// Summed over the ranks, and put together.
  Tensors gradients() const {
    Tensors whole;
    for (size_t i = 0; i < 6; ++i) {
      Tensor g = p[i].grad();
      const int cut = kParameters[i].cut;
      if (!(planted(2) && i == 4)) g = dp.all_reduce(g);
      if (planted(7)) g = g * (1.0 / s.dp);
      if (s.tokens_cut && cut < 0 && !(planted(6) && i == 1)) g = tp.all_reduce(g);
      whole.push_back(cut < 0 ? g : tp.all_gather(g, cut));
    }
    return whole;
  }
};
inline Tensors gradients(const Communicator& world, const Setting& s) {
  const ProcessGrid grid = model_grid(world, {.tp = s.tp});
  Rank rank{s, grid.group({"tp"}), grid.group({"dp"})};
  rank.draw_parameters();
  rank.backward();
  return rank.gradients();
}

}  // namespace gradus::tutorial
