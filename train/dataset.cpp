#include "train/dataset.h"

#include <algorithm>

#include "core/check.h"
#include "core/random.h"
#include "train/permutation.h"

namespace gradus::train {
namespace {

Batch empty_batch(int64_t rows, int64_t length) {
  const auto n = size_t(rows * length);
  return {.rows = rows,
          .length = length,
          .inputs = std::vector<int32_t>(n, 0),
          .targets = std::vector<int32_t>(n, kIgnoreTarget),
          .types = {},
          .mask = {},
          .random = {}};
}

// Row `row` becomes the window at `start`: `count` targets, the rest stays ignored.
void fill_row(Batch& batch, int64_t row, const TokenRange& range, int64_t start, int64_t count) {
  const int64_t at = row * batch.length, from = range.first + start;
  range.tokens->copy(from, count, &batch.inputs[size_t(at)]);
  range.tokens->copy(from + 1, count, &batch.targets[size_t(at)]);
}

}  // namespace

TokenRange whole(std::shared_ptr<const Tokens> tokens) {
  const int64_t count = tokens->size();
  return {std::move(tokens), 0, count};
}

std::pair<TokenRange, TokenRange> split(std::shared_ptr<const Tokens> tokens, double fraction) {
  check(fraction > 0 && fraction < 1, "the held-out fraction must lie between 0 and 1, got ",
        fraction);
  const auto held = int64_t(double(tokens->size()) * fraction), kept = tokens->size() - held;
  return {{tokens, 0, kept}, {tokens, kept, held}};
}

TrainingWindows::TrainingWindows(TokenRange range, int64_t length, int64_t batch, uint64_t seed)
    : range_(std::move(range)), length_(length), seed_(seed) {
  check(length > 0 && batch > 0, "window length and batch size must be positive, got ", length,
        " and ", batch);
  const int64_t needed = batch * length + 1;
  check(range_.count >= needed, "", range_.tokens->path(), " has ", range_.tokens->size(),
        " tokens, ", range_.count, " of them for training, but a batch of ", batch, " windows of ",
        length, " needs ", needed, "; use more text, shorter windows or a smaller batch");
}

int64_t TrainingWindows::start_of(int64_t sample) const {
  check(sample >= 0, "sample ", sample, " does not exist: samples count from 0");
  const int64_t epoch = sample / windows(), index = sample % windows();
  const uint64_t key = mix(mix(seed_) + uint64_t(epoch));
  const int64_t shift = epoch == 0 ? 0 : int64_t(mix(key) % uint64_t(length_));
  const auto window = int64_t(permute_index(uint64_t(index), uint64_t(windows()), key));
  return std::min(window * length_ + shift, range_.count - 1 - length_);
}

Batch TrainingWindows::batch(int64_t first_sample, int64_t count) const {
  Batch batch = empty_batch(count, length_);
  for (int64_t row = 0; row < count; ++row)
    fill_row(batch, row, range_, start_of(first_sample + row), length_);
  return batch;
}

ValidationWindows::ValidationWindows(TokenRange range, int64_t length)
    : range_(std::move(range)), length_(length) {
  check(length > 0, "window length must be positive, got ", length);
  check(range_.count >= 2, "", range_.tokens->path(), " has ", range_.tokens->size(), " tokens, ",
        std::max<int64_t>(range_.count, 0),
        " of them held out for validation, but 2 are needed; use more text or hold out more of it");
}

Batch ValidationWindows::batch(int64_t index, int64_t rows) const {
  check(rows > 0 && index >= 0 &&
                index<batches(rows), "validation batch ", index, " does not exist: there are ",
                      rows> 0
            ? batches(rows)
            : 0,
        " of ", rows, " rows");
  Batch batch = empty_batch(rows, length_);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t start = (index * rows + row) * length_;
    if (start < targets())
      fill_row(batch, row, range_, start, std::min(length_, targets() - start));
  }
  return batch;
}

}  // namespace gradus::train
