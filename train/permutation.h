#pragma once
// A random order of n things without a table of n numbers: a bijection of {0 … n − 1} chosen by a key.
//
// A Feistel network [Luby & Rackoff 1988] permutes the numbers of 2h bits, whatever the function F:
//
//   (left, right) → (right, left ⊕ F(right, key, round))        undone by computing F again
//
// With h the least from 4 on such that 4ʰ ≥ n, an image may fall outside {0 … n − 1}; it is then
// permuted again until it falls inside ("cycle walking" [Black & Rogaway 2002]). The walk ends, since
// it follows the cycle of a number inside; it stays injective; and it takes 4ʰ/n steps on average,
// fewer than 4 for n > 64.
#include <cstdint>

namespace gradus::train {

/// Image of `index` (below `size`) under the permutation of {0 … size − 1} that `key` chooses.
uint64_t permute_index(uint64_t index, uint64_t size, uint64_t key);

}  // namespace gradus::train
