#pragma once
// Random numbers without state: Philox4x32-10 [Salmon, Moraes, Dror & Shaw 2011].
//
// A stream is not walked through, it is looked up: element i of stream s under seed S is
//
//   word(i) = lane i mod 4 of philox( counter = (i/4, s), key = S )        32 random bits
//
//   counter   ┌──────┬──────┬──────┬──────┐      key  ┌──────┬──────┐
//             │ i/4 lo, hi  │ stream lo,hi│           │ seed lo, hi │
//             └──────┴──────┴──────┴──────┘           └──────┴──────┘
//
// so a number depends on its index in the global tensor alone: neither on who draws it (CPU, GPU,
// which rank, recomputed or not) nor on how many were drawn before. Philox is a block cipher made
// weak enough to be fast: ten rounds, each two multiplications 32 × 32 → 64 whose halves are
// exchanged and combined by xor with a key that moves on from round to round.
#include <cstdint>

#include "core/box_muller.h"
#include "core/device.h"

namespace gradus {

/// Four random words: what one run of the cipher yields.
struct RandomBlock {
  uint32_t x, y, z, w;

  /// Lane i mod 4. Selections instead of an array: registers have no index on a GPU.
  GRADUS_HD uint32_t lane(uint64_t i) const { return i & 2 ? (i & 1 ? w : z) : (i & 1 ? y : x); }
};

/// The cipher itself: ten rounds on `counter` under the key (k0, k1).
GRADUS_HD inline RandomBlock philox4x32(RandomBlock counter, uint32_t k0, uint32_t k1) {
  RandomBlock c = counter;
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t(0xD2511F53u) * c.x, p1 = uint64_t(0xCD9E8D57u) * c.z;
    c = {uint32_t(p1 >> 32) ^ c.y ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c.w ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9u;  // 2³² / golden ratio
    k1 += 0xBB67AE85u;  // 2³² (√3 − 1)
  }
  return c;
}

/// 64 bits to 64 bits, one to one, every output bit depending on every input bit (splitmix64).
GRADUS_HD inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/// FNV-1a of a text: the site of a parameter is the hash of its name.
constexpr uint64_t fnv1a(const char* text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text; ++text) hash = (hash ^ uint8_t(*text)) * 0x100000001b3u;
  return hash;
}

/// One stream of random numbers, looked up by element. A value: copy it into a kernel.
struct Philox {
  uint64_t seed = 0;
  uint64_t stream = 0;

  /// The stream of `sample` at a place in the model (`site`: a layer's dropout, a parameter's
  /// name). Sites have keys of their own, so no two of them share a number.
  static Philox at(uint64_t seed, uint64_t site, uint64_t sample = 0) {
    return {mix(seed ^ mix(site)), sample};
  }

  /// Words 4·index … 4·index + 3.
  GRADUS_HD RandomBlock block(uint64_t index) const {
    return philox4x32(
        {uint32_t(index), uint32_t(index >> 32), uint32_t(stream), uint32_t(stream >> 32)},
        uint32_t(seed), uint32_t(seed >> 32));
  }
  GRADUS_HD uint32_t word(uint64_t i) const { return block(i / 4).lane(i); }

  /// Uniform in [0, 1): the upper 24 bits of the word for float, 53 bits for double. The lower 21
  /// of those come from a block far away, so that both types draw the same number up to 2⁻²⁴.
  template <class T = float>
  GRADUS_HD T uniform(uint64_t i) const;

  /// Standard normal. Elements 2j and 2j + 1 are one Box–Muller pair: see core/box_muller.h.
  GRADUS_HD double normal(uint64_t i) const {
    RandomBlock b = block(i / 4);
    NormalPair pair = i & 2 ? box_muller(b.z, b.w) : box_muller(b.x, b.y);
    return i & 1 ? pair.odd : pair.even;
  }

  /// True with probability 1 − p for threshold = drop_threshold(p).
  GRADUS_HD bool keep(uint64_t i, uint64_t threshold) const { return word(i) >= threshold; }

  bool operator==(const Philox&) const = default;
};

inline constexpr uint64_t kLowBits = uint64_t(1) << 63;  // block index of the lower bits of doubles

GRADUS_HD inline float uniform_float(uint32_t word) { return float(word >> 8) * 0x1p-24f; }
GRADUS_HD inline double uniform_double(uint32_t high, uint32_t low) {
  return double(int64_t(uint64_t(high) << 21 | low >> 11)) * 0x1p-53;
}

template <>
GRADUS_HD inline float Philox::uniform<float>(uint64_t i) const {
  return uniform_float(word(i));
}
template <>
GRADUS_HD inline double Philox::uniform<double>(uint64_t i) const {
  return uniform_double(word(i), block(kLowBits + i / 4).lane(i));
}

/// round(p · 2³²): a word below it is dropped. 64 bits wide, since p = 1 drops all 2³² words.
/// An integer compare: CPU and GPU agree on every element. Error unless 0 ≤ p ≤ 1.
uint64_t drop_threshold(double p);

/// Elements first … first + n − 1 of a stream on the CPU, vectorised; the same numbers, bit for
/// bit, as the calls by element.
void fill_words(const Philox& stream, uint64_t first, uint32_t* out, int64_t n);
void fill_uniform(const Philox& stream, uint64_t first, float* out, int64_t n);
void fill_uniform(const Philox& stream, uint64_t first, double* out, int64_t n);
void fill_normal(const Philox& stream, uint64_t first, float* out, int64_t n);
void fill_normal(const Philox& stream, uint64_t first, double* out, int64_t n);

/// Hands out streams 0, 1, 2, … of a seed, one for each draw. Passed to whoever draws, never
/// global; its two numbers are its whole state.
class Generator {
 public:
  struct State {
    uint64_t seed = 0;
    uint64_t streams = 0;  // handed out so far
    bool operator==(const State&) const = default;
  };

  explicit Generator(uint64_t seed = 0) : state_{seed, 0} {}
  explicit Generator(State state) : state_(state) {}

  Philox next() { return {state_.seed, state_.streams++}; }
  State state() const { return state_; }
  void restore(State state) { state_ = state; }

 private:
  State state_;
};

}  // namespace gradus
