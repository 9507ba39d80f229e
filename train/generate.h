#pragma once
// Lets a model write: token by token, each drawn from the distribution that the model gives after all
// tokens before it. Keys and values of earlier tokens are kept, so a token costs one position.
#include <vector>

#include "train/language_model.h"
#include "train/sampler.h"

namespace gradus::train {

class TextGenerator {
 public:
  /// Continues `prompt`, which has at least one id. The same seed writes the same text.
  TextGenerator(LanguageModel& model, std::vector<int32_t> prompt, const Sampling& sampling,
                uint64_t seed);

  /// The next token. Where the context is full, its older half is forgotten.
  int32_t next();

 private:
  LanguageModel& model_;
  std::vector<int32_t> context_;  // what the cache has read
  std::vector<int32_t> unread_;   // what comes after it: the prompt, then one token at a time
  Sampling sampling_;
  Philox random_;
  uint64_t drawn_ = 0;
  KvCache cache_;
};

}  // namespace gradus::train
