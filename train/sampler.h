#pragma once
// Chooses the next token from the logits z of a language model:
//
//   p_i ∝ exp(z_i / temperature)          0: the largest logit, the lowest index of equals
//   top_k > 0                             only the k largest logits stay
//   top_p < 1                             then only the fewest tokens, largest first, whose p sum to
//                                         top_p or more [Holtzman et al. 2020]
//
// and the token at which the sum of the remaining p first exceeds u, a uniform number in [0, 1).
#include <cstdint>
#include <vector>

namespace gradus::train {

struct Sampling {
  double temperature = 1;
  int top_k = 0;  // 0: all
  double top_p = 1;
};

/// Error when a setting is out of range; meant to be called before anything is generated.
void check_sampling(const Sampling& sampling);

/// Index of the chosen token. A logit of −∞ is never chosen; NaN and +∞ are an Error.
int32_t sample_token(const std::vector<float>& logits, const Sampling& sampling, double uniform01);

}  // namespace gradus::train
