#pragma once
// What the models share: random numbers by the place where they are drawn, and the check of a configuration.
#include "core/random.h"

namespace gradus::detail {

/// The generator of one place in the model during one forward: place 0 is the embedding, 1 … L are the
/// blocks. Each has streams of its own, so a block draws the same numbers whichever rank runs it, and
/// when it is run again.
inline Generator generator_of(const Philox& forward, uint64_t place) {
  constexpr uint64_t kDraws = 16;  // streams that a place may use in one forward
  return Generator({Philox::at(forward.seed, place).seed, forward.stream * kDraws});
}

/// The configuration itself. Error if its numbers do not fit together.
template <class Config>
const Config& valid(const Config& config) {
  config.check_valid();
  return config;
}

}  // namespace gradus::detail
