#include "parallel/vocab_parallel.h"

#include "ops/lookup.h"
#include "parallel/collectives.h"

namespace gradus::parallel {

int64_t vocab_rows(int64_t vocabulary, int ranks) {
  constexpr int64_t kMultiple = 8;
  if (ranks == 1) return vocabulary;
  const int64_t rows = (vocabulary + ranks - 1) / ranks;
  return (rows + kMultiple - 1) / kMultiple * kMultiple;
}

static nn::Shard vocab_shard(const TensorParallel& tp, int64_t vocabulary) {
  if (!tp.is_cut()) return {};
  return nn::padded_shard(tp.rank(), tp.ranks(), vocab_rows(vocabulary, tp.ranks()), vocabulary);
}
nn::Parameter vocab_parameter(const TensorParallel& tp, int64_t vocabulary, int64_t width,
                              nn::Initializer init) {
  return {{vocab_rows(vocabulary, tp.ranks()), width}, init, vocab_shard(tp, vocabulary)};
}
nn::Parameter vocab_parameter(const TensorParallel& tp, int64_t vocabulary, nn::Initializer init) {
  return {{vocab_rows(vocabulary, tp.ranks())}, init, vocab_shard(tp, vocabulary)};
}

Tensor rows_of_parts(const TensorParallel& tp, const Tensor& part, const Tensor& ids,
                     int64_t total) {
  if (!tp.is_cut()) return embedding(part, ids);
  const int64_t first = tp.rank() * part.size(0);
  Tensor mine = embedding_part(part, ids, first, total);
  if (!tp.splits_tokens()) return reduce_from(tp.group, mine);
  tp.check_tokens(ids.numel());
  return reduce_scatter(tp.group, reshape(mine, {-1, mine.size(-1)}), 0);
}

VocabEmbedding::VocabEmbedding(int64_t count, int64_t width, const TensorParallel& tp)
    : nn::Embedding(vocab_parameter(tp, count, width, nn::init::normal(1))), tp(tp), count(count) {}

Tensor gather_logits(const Communicator& group, const Tensor& logits, int64_t vocabulary) {
  if (group.size() == 1) return logits;
  return slice(gather_from(group, logits, -1, Consumer::replicated), -1, 0, vocabulary);
}

}  // namespace gradus::parallel
