#include "train/masked_loss.h"

#include <algorithm>

#include "autograd/node.h"
#include "ops/ops.h"

namespace gradus::train {
namespace {

struct Sample {
  BertInputs inputs;
  BertTargets targets;
};

template <class T>
Tensor part(const std::vector<T>& values, int64_t first, const Shape& shape, Device device) {
  const Tensor host = empty(shape, gradus::dtype_of<T>);
  std::copy_n(values.begin() + first, shape.numel(), host.data<T>());
  return to(host, device);
}

Sample sample_of(const LanguageModel& model, const Batch& b, int64_t first, int64_t rows) {
  const int64_t T = b.length, begin = first * T;
  std::vector<int64_t> places;
  std::vector<int32_t> words;
  for (int64_t i = 0; i < rows * T; ++i) {
    const int32_t word = b.targets[size_t(begin + i)];
    if (word == kIgnoreTarget) continue;
    places.push_back(i), words.push_back(word);
  }
  const auto M = int64_t(places.size());
  const Device device = model.device;
  const auto rows_of = [&](const auto& values) { return part(values, begin, {rows, T}, device); };
  return {{rows_of(b.inputs), rows_of(b.types), rows_of(b.mask)},
          {part(places, 0, {M}, device), part(words, 0, {M}, device),
           part(b.random, first, {rows}, device)}};
}

int64_t count_right(const Tensor& logits, const Tensor& targets) {
  if (targets.numel() == 0) return 0;
  const Tensor chosen = cast(argmax(logits, 1), targets.dtype());
  return int64_t(sum(cast(equal(chosen, targets), DType::f32)).item());
}

LossSum summed(const nn::LossSum& loss) { return {loss.sum.item(), int64_t(loss.count.item())}; }

}  // namespace

Tensor masked_loss_sum(LanguageModel& model, const Batch& batch, int64_t first, int64_t rows,
                       const Randomness& dropout, double pair_weight) {
  const Sample s = sample_of(model, batch, first, rows);
  const BertLoss loss = model.bert->loss(s.inputs, s.targets, dropout, kIgnoreTarget);
  return loss.words.sum + loss.sentences.sum * pair_weight;
}

Scores masked_scores(LanguageModel& model, const Batch& batch, int64_t first, int64_t rows) {
  const NoGrad no_grad;
  const Bert& bert = *model.bert;
  const Sample s = sample_of(model, batch, first, rows);
  const Tensor h = bert(s.inputs), words = bert.word_logits(rows_at(h, s.targets.places));
  const Tensor next = bert.next_logits(bert.pooled(h));
  const CrossEntropyOptions options{.ignore_index = kIgnoreTarget};
  Scores scores;
  static_cast<LossSum&>(scores) = summed(nn::cross_entropy_sum(words, s.targets.words, options));
  scores.right = count_right(words, s.targets.words);
  scores.pairs = summed(nn::cross_entropy_sum(next, s.targets.random, options));
  scores.right_pairs = count_right(next, s.targets.random);
  return scores;
}

}  // namespace gradus::train
