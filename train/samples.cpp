#include "train/samples.h"

#include "core/check.h"

namespace gradus::train {
namespace {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

StepSamples::StepSamples(const Settings& s, int data_rank)
    : micro_batches(s.accumulate),
      data_ranks(s.dp),
      rank(data_rank),
      rows(s.batch / (s.accumulate * s.dp)) {
  check(rows * micro_batches * data_ranks == s.batch, "a step of ", s.batch,
        " windows does not divide into ", micro_batches, " micro-batches for each of ", data_ranks,
        " data ranks");
}

Batch local_batch(const TrainingData& data, int64_t first_sample, const StepSamples& samples) {
  if (samples.data_ranks == 1) return data.batch(first_sample, samples.local());
  Batch all;
  for (int64_t m = 0; m < samples.micro_batches; ++m) {
    const Batch part = data.batch(first_sample + samples.first(m), samples.rows);
    all.rows += part.rows, all.length = part.length;
    append(all.inputs, part.inputs), append(all.targets, part.targets);
    append(all.types, part.types), append(all.mask, part.mask), append(all.random, part.random);
  }
  return all;
}

}  // namespace gradus::train
