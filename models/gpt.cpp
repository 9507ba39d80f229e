#include "models/gpt.h"

#include <memory>

#include "autograd/node.h"
#include "autograd/recompute.h"
#include "models/places.h"

namespace gradus {

Gpt::Gpt(const GptConfig& c, const parallel::TensorParallel& tp)
    : config(detail::valid(c)), tp(tp), tokens(c.vocab, c.width, tp), drop(c.dropout), norm(c, tp) {
  tokens.weight.init = nn::init::normal(c.deviation);
  if (c.position == PositionKind::learned)
    positions = nn::Parameter({c.max_length, c.width}, nn::init::normal(c.deviation), tp.whole());
  for (int64_t layer = 0; layer < c.layers; ++layer) blocks.emplace_back(c, layer, tp);
  if (!c.tied)
    head = parallel::vocab_parameter(tp, c.vocab, c.width, nn::init::normal(c.deviation));
}

Tensor Gpt::operator()(const Tensor& ids, const Randomness& random) const {
  Tensor all = logits(hidden(ids, random));
  return tp.splits_tokens() ? reshape(all, {ids.size(0), ids.size(1), -1}) : all;
}

Tensor Gpt::loss(const Tensor& ids, const Tensor& targets, const Randomness& random,
                 CrossEntropyOptions options) const {
  check(targets && targets.shape() == ids.shape(), "loss: ids ", ids.describe(),
        " need targets of the "
        "same shape, got ",
        targets.describe());
  Tensor own = own_logits(hidden(ids, random));
  if (tp.splits_tokens()) own = reshape(own, {ids.size(0), ids.size(1), -1});
  return vocab_cross_entropy(tp.group, std::move(own), targets, config.vocab, options);
}

Tensor Gpt::next_logits(const Tensor& ids, KvCache& cache) const {
  NoGrad guard;
  Tensor h = hidden(ids, nullptr, &cache);
  return logits(select(h, 1, h.size(1) - 1));
}

Tensor Gpt::hidden(const Tensor& ids, Randomness random, KvCache* cache) const {
  check(ids && ids.rank() == 2, "a GPT reads ids of shape (batch, length), got ", ids.describe());
  int64_t T = ids.size(1), first = cache ? cache->length() : 0;
  check(first + T <= config.max_length, "a sequence of ", first + T, " tokens is longer than the ",
        config.max_length, " that this model was made for");
  check(!cache || !grad_enabled(), "what a cache keeps has no history: read with it under NoGrad");
  check(!cache || !tp.is_cut(), "a cache is for one rank, but this model is cut over ", tp.ranks());
  random.tokens = TokenRows(tp, ids.size(0), T);
  Philox forward;
  if (!drop.drops()) random.generator = nullptr;
  if (random.generator) forward = random.generator->next();
  auto run = [&](uint64_t place, auto f) {
    Generator own = detail::generator_of(forward, place);
    return f(random.with(random.generator ? &own : nullptr));
  };
  Residual stream = embedded(ids, random.tokens, first);
  stream.x = run(
      0, [&](const Randomness& r) { return drop(stream.x, r.generator, r.elements(stream.x)); });
  for (size_t i = 0; i < blocks.size(); ++i)
    stream = run(i + 1, [&](const Randomness& r) {
      return run_block(blocks[i], std::move(stream), r, cache);
    });
  if (cache) cache->advance(T);
  return norm(stream);
}

Residual Gpt::embedded(const Tensor& ids, const TokenRows& rows, int64_t first) const {
  Tensor x = tokens(ids);
  if (!positions) return {x};
  if (rows.is_cut()) return {x + embedding(positions, rows.positions(ids.size(0), ids.device()))};
  Tensor y = slice(positions, 0, first, first + ids.size(1));
  return drop.drops() ? Residual{x + y} : Residual{.x = x, .branch = y};
}

Residual Gpt::run_block(const Block& block, Residual stream, const Randomness& random,
                        KvCache* cache) const {
  if (!recompute_blocks || !grad_enabled()) return block(std::move(stream), random, cache);
  const Tensors inputs{stream.x, stream.branch};
  stream.x = stream.branch = {};
  auto rest = std::make_shared<Residual>();  // what the result is besides its tensors
  auto segment = [&block, cache, stream, rest, repeat = detail::Repeat(random)](const Tensors& in) {
    Residual s = stream;
    s.x = in[0], s.branch = in[1];
    *rest = repeat([&](const Randomness& r) { return block(std::move(s), r, cache); });
    return Tensors{std::exchange(rest->x, {}), std::exchange(rest->branch, {})};
  };
  Tensors outputs = recompute(segment, inputs);
  stream = *rest;
  stream.x = outputs[0], stream.branch = outputs[1];
  return stream;
}

Tensor Gpt::own_logits(const Tensor& hidden) const {
  return column_linear(tp, hidden, config.tied ? tokens.weight : head);
}
Tensor Gpt::logits(const Tensor& hidden) const {
  return gather_logits(tp.group, own_logits(hidden), config.vocab);
}

}  // namespace gradus
