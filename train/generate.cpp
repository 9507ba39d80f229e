#include "train/generate.h"

#include <algorithm>

#include "ops/ops.h"

namespace gradus::train {

namespace {

const Gpt& gpt_of(const LanguageModel& model) {
  check(model.gpt != nullptr, "a BERT fills in what is masked; only a GPT writes");
  return *model.gpt;
}

}  // namespace

TextGenerator::TextGenerator(LanguageModel& model, std::vector<int32_t> prompt,
                             const Sampling& sampling, uint64_t seed)
    : model_(model),
      unread_(std::move(prompt)),
      sampling_(sampling),
      random_(Philox::at(seed, fnv1a("sample"))),
      cache_(gpt_of(model).config, 1, gpt_of(model).config.max_length, model.dtype, model.device) {
  check_sampling(sampling);
  check(!unread_.empty(), "a prompt of at least one token is needed");
}

int32_t TextGenerator::next() {
  const nn::Evaluating evaluating(*model_.gpt);
  context_.insert(context_.end(), unread_.begin(), unread_.end());
  const int64_t capacity = cache_.capacity();
  if (int64_t(context_.size()) > capacity) {
    context_.erase(context_.begin(), context_.end() - std::max<int64_t>(capacity / 2, 1));
    cache_.truncate(0);
    unread_ = context_;
  }
  const Tensor logits = cast(model_.gpt->next_logits(model_.ids(unread_, 1), cache_), DType::f32);
  const Tensor host = contiguous(to(logits, kCpu));
  const std::vector<float> z(host.data<float>(), host.data<float>() + host.numel());
  const int32_t token = sample_token(z, sampling_, random_.uniform<double>(drawn_++));
  unread_ = {token};
  return token;
}

}  // namespace gradus::train
