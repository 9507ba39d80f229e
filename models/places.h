#pragma once
// What the models share: which tokens and heads a rank works on, random numbers by the place where they are
// drawn, and the check of a configuration.
#include "core/index_map.h"
#include "core/random.h"
#include "parallel/tensor_parallel.h"

namespace gradus {

/// Which tokens of a micro-batch the activations hold: all of them, as (B, T, C); or, where tokens are cut
/// over the ranks, rows first … first + rows − 1 of (B·T, C).
struct TokenRows {
  int64_t length = 0;  // T where tokens are cut, else 0
  int64_t first = 0, rows = 0;

  TokenRows() = default;
  /// Those of this rank. Error, under sequence parallelism, where B T does not divide.
  TokenRows(const parallel::TensorParallel& tp, int64_t B, int64_t T);
  bool is_cut() const { return length > 0; }
  /// T, for activations x.
  int64_t length_of(const Tensor& x) const { return is_cut() ? length : x.size(1); }
  /// The rows of what each token has, y (B, T): (rows); y itself where all are here.
  Tensor of(const Tensor& y) const;
  /// The positions 0 … T − 1 of these rows, of B texts: (rows) of i32.
  Tensor positions(int64_t B, Device device) const;
};

/// The heads of attention that a rank has: `groups` of them, each of `per_group` that share keys and values.
/// With fewer groups than ranks a rank has a part of one group:
///
///   2 groups of 4 over 4 ranks     │ q₀ q₁ q₂ q₃ k₀ v₀ │ q₄ q₅ q₆ q₇ k₁ v₁ │
///                                    0     1     0, 1    2     3     2, 3
struct HeadShare {
  int64_t all = 0;    // heads of the model
  int64_t first = 0;  // the first of those here
  int64_t groups = 0, per_group = 0;
  int64_t all_groups = 0;     // of the model
  bool shares_group = false;  // with other ranks

  /// Error where neither the groups divide by the ranks nor the ranks by the groups.
  HeadShare(const parallel::TensorParallel& tp, int64_t heads, int64_t groups);
  int64_t heads() const { return groups * per_group; }
  /// From what the column layer of a rank gives, x (…, its rows of the matrix), the packed heads
  /// (B, T, groups, per_group + 2, d).
  Tensor packed(const parallel::TensorParallel& tp, const Tensor& x, int64_t T, int64_t d) const;
};

/// Where the masks of dropout come from in one forward. A step draws one mask for all of its samples:
/// micro-batches give equal states of a generator and say which samples they are, and so drop what one
/// batch of all would.
struct Randomness {
  Generator* generator = nullptr;  // null where nothing is dropped; one stream of it is used
  int64_t first_sample = 0;        // which sample of the step is sample 0 of this forward
  TokenRows tokens{};              // that activations hold; the models say it

  Randomness() = default;
  Randomness(Generator* g, int64_t first = 0) : generator(g), first_sample(first) {}

  /// The elements of activations x.
  IndexMap elements(const Tensor& x) const {
    const int64_t first_row = first_sample * tokens.length_of(x) + tokens.first;
    return {.first = uint64_t(first_row * x.size(-1))};
  }
  /// The heads of attention, as in AttentionOptions.
  IndexMap head_rows(const HeadShare& heads) const {
    const auto first = uint64_t(first_sample * heads.all + heads.first);
    if (heads.heads() == heads.all) return {.first = first};
    return {.first = first, .run = heads.heads(), .stride = heads.all};
  }
  /// The same, with another generator (or none).
  Randomness with(Generator* g) const {
    Randomness other = *this;
    other.generator = g;
    return other;
  }
};

namespace detail {

/// The generator of one place in the model during one forward: place 0 is the embedding, 1 … L are the
/// blocks. Each has streams of its own, so a block draws the same numbers whichever rank runs it, and
/// when it is run again.
inline Generator generator_of(const Philox& forward, uint64_t place) {
  constexpr uint64_t kDraws = 16;  // streams that a place may use in one forward
  return Generator({Philox::at(forward.seed, place).seed, forward.stream * kDraws});
}

/// Calls f with the same random numbers each time: for what is run twice.
class Repeat {
 public:
  explicit Repeat(const Randomness& random) : random_(random) {
    if (random.generator) state_ = random.generator->state();
  }
  template <class F>
  auto operator()(F f) const {
    Generator again(state_);
    return f(random_.with(random_.generator ? &again : nullptr));
  }

 private:
  Randomness random_;  // its generator is looked at for null, and no further
  Generator::State state_{};
};

/// The configuration itself. Error if its numbers do not fit together.
template <class Config>
const Config& valid(const Config& config) {
  config.check_valid();
  return config;
}

}  // namespace detail
}  // namespace gradus
