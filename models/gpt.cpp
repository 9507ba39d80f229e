#include "models/gpt.h"

#include "autograd/node.h"
#include "autograd/recompute.h"

namespace gradus {
namespace {

const GptConfig& valid(const GptConfig& c) {
  c.check_valid();
  return c;
}

/// The generator of one place in the model during one forward: place 0 is the embedding, 1 … L are the
/// blocks. Each has streams of its own, so a block draws the same numbers whichever rank runs it, and
/// when it is run again.
Generator generator_of(const Philox& forward, uint64_t place) {
  constexpr uint64_t kDraws = 16;  // streams that a place may use in one forward
  return Generator({Philox::at(forward.seed, place).seed, forward.stream * kDraws});
}

}  // namespace

Gpt::Gpt(const GptConfig& c)
    : config(valid(c)), tokens(c.vocab, c.width), drop(c.dropout), norm(c) {
  tokens.weight.init = nn::init::normal(c.deviation);
  if (c.position == PositionKind::learned)
    positions = nn::Parameter({c.max_length, c.width}, nn::init::normal(c.deviation));
  for (int64_t layer = 0; layer < c.layers; ++layer) blocks.emplace_back(c, layer);
  if (!c.tied) head = nn::Parameter({c.vocab, c.width}, nn::init::normal(c.deviation));
}

Tensor Gpt::operator()(const Tensor& ids, Generator* generator) const {
  return logits(hidden(ids, generator));
}

Tensor Gpt::loss(const Tensor& ids, const Tensor& targets, Generator* generator,
                 CrossEntropyOptions options) const {
  check(targets && targets.shape() == ids.shape(), "loss: ids ", ids.describe(),
        " need targets of the "
        "same shape, got ",
        targets.describe());
  return cross_entropy((*this)(ids, generator), targets, options);
}

Tensor Gpt::next_logits(const Tensor& ids, KvCache& cache) const {
  NoGrad guard;
  Tensor h = hidden(ids, nullptr, &cache);
  return logits(select(h, 1, h.size(1) - 1));
}

Tensor Gpt::hidden(const Tensor& ids, Generator* generator, KvCache* cache) const {
  check(ids && ids.rank() == 2, "a GPT reads ids of shape (batch, length), got ", ids.describe());
  int64_t T = ids.size(1), first = cache ? cache->length() : 0;
  check(first + T <= config.max_length, "a sequence of ", first + T, " tokens is longer than the ",
        config.max_length, " that this model was made for");
  check(!cache || !grad_enabled(), "what a cache keeps has no history: read with it under NoGrad");
  Philox forward;
  if (!drop.drops()) generator = nullptr;
  if (generator) forward = generator->next();
  auto run = [&](uint64_t place, auto f) {
    Generator own = generator_of(forward, place);
    return f(generator ? &own : nullptr);
  };
  Tensor x = tokens(ids);
  if (positions) x = x + slice(positions, 0, first, first + T);
  x = run(0, [&](Generator* g) { return drop(x, g); });
  for (size_t i = 0; i < blocks.size(); ++i)
    x = run(i + 1, [&](Generator* g) { return run_block(blocks[i], x, g, cache); });
  if (cache) cache->advance(T);
  return norm(x);
}

Tensor Gpt::run_block(const Block& block, const Tensor& x, Generator* generator,
                      KvCache* cache) const {
  if (!recompute_blocks || !grad_enabled()) return block(x, generator, cache);
  auto segment = [&block, cache, own = generator ? *generator : Generator(),
                  draws = generator != nullptr](const Tensors& in) {
    Generator again = own;
    return Tensors{block(in[0], draws ? &again : nullptr, cache)};
  };
  return recompute(segment, {x})[0];
}

Tensor Gpt::logits(const Tensor& hidden) const {
  return linear(hidden, config.tied ? tokens.weight : head);
}

}  // namespace gradus
