#pragma once
// What the models share: random numbers by the place where they are drawn, and the check of a configuration.
#include "core/index_map.h"
#include "core/random.h"
#include "models/shares.h"

namespace gradus {

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
