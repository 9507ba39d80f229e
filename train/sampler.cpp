#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace gradus::train {
namespace {

struct Candidate {
  int32_t token;
  double weight;  // exp((z − max z) / temperature)
};

int32_t largest(const std::vector<float>& logits) {
  for (size_t i = 0; i < logits.size(); ++i)
    check(!std::isnan(logits[i]) && logits[i] != INFINITY, "cannot sample: the logit of token ", i,
          " is ", logits[i]);
  const auto at = std::max_element(logits.begin(), logits.end());
  check(at != logits.end() && std::isfinite(*at), "cannot sample: ", logits.size(),
        " logits, none of them finite");
  return int32_t(at - logits.begin());
}

bool heavier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

double total(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.weight; });
}

// Shortens a sorted list to the fewest that hold the share top_p of the whole.
void keep_nucleus(std::vector<Candidate>& sorted, double top_p) {
  const double enough = top_p * total(sorted);
  double sum = 0;
  size_t kept = 0;
  while (kept < sorted.size() && sum < enough) sum += sorted[kept++].weight;
  sorted.resize(std::max<size_t>(kept, 1));
}

}  // namespace

void check_sampling(const Sampling& s) {
  check(s.temperature >= 0 && std::isfinite(s.temperature),
        "temperature must be 0 (always the likeliest token) or positive, got ", s.temperature);
  check(s.top_k >= 0, "top-k must be positive, or 0 for all tokens, got ", s.top_k);
  check(s.top_p > 0 && s.top_p <= 1, "top-p must lie in (0, 1], got ", s.top_p);
}

int32_t sample_token(const std::vector<float>& logits, const Sampling& s, double uniform01) {
  check_sampling(s);
  check(uniform01 >= 0 && uniform01 < 1, "a uniform number in [0, 1) is needed, got ", uniform01);
  const int32_t best = largest(logits);
  if (s.temperature == 0) return best;

  std::vector<Candidate> candidates;
  const double top = logits[size_t(best)];
  for (size_t i = 0; i < logits.size(); ++i)
    candidates.push_back({int32_t(i), std::exp((double(logits[i]) - top) / s.temperature)});
  if (s.top_k > 0 && size_t(s.top_k) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + s.top_k, candidates.end(), heavier);
    candidates.resize(size_t(s.top_k));
  }
  std::sort(candidates.begin(), candidates.end(), heavier);
  if (s.top_p < 1) keep_nucleus(candidates, s.top_p);

  double left = uniform01 * total(candidates);
  for (const Candidate& c : candidates)
    if ((left -= c.weight) < 0) return c.token;
  return candidates.front().token;  // rounding left a last sliver: any token may have it
}

}  // namespace gradus::train
