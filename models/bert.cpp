#include "models/bert.h"

#include "autograd/node.h"
#include "autograd/recompute.h"
#include "models/places.h"
#include "parallel/collectives.h"

namespace gradus {
namespace {

void check_inputs(const BertInputs& in, int64_t max_length) {
  check(in.ids && in.ids.rank() == 2, "a BERT reads ids of shape (batch, length), got ",
        in.ids.describe());
  check(in.ids.size(1) <= max_length, "a text of ", in.ids.size(1), " tokens is longer than the ",
        max_length, " that this model was made for");
  check(in.types && in.types.shape() == in.ids.shape(), "ids ", in.ids.describe(),
        " need segment types of the same shape, got ", in.types.describe());
  check(!in.mask || (in.mask.shape() == in.ids.shape() && in.mask.dtype() == DType::u8), "ids ",
        in.ids.describe(), " need a padding mask of the same shape and of u8 (0 at padding), got ",
        in.mask.describe());
}

/// With as many questions that nobody asks as make their number a multiple of n.
BertTargets padded(BertTargets t, int64_t n, int64_t ignore_index) {
  const int64_t M = t.places.size(0), missing = (std::max<int64_t>(M, 1) + n - 1) / n * n - M;
  const Device device = t.places.device();
  t.places = cat({t.places, zeros({missing}, t.places.dtype(), device)}, 0);
  t.words = cat({t.words, full({missing}, double(ignore_index), t.words.dtype(), device)}, 0);
  return t;
}

}  // namespace

Bert::Bert(const BertConfig& c, const parallel::TensorParallel& tp)
    : config(detail::valid(c)),
      tp(tp),
      words(c.vocab, c.width, tp),
      positions(c.max_length, c.width),
      types(c.types, c.width),
      norm(c.width, c.epsilon),
      drop(c.dropout),
      pooler(c.width, c.width),
      head(c.width, c.width),
      head_norm(c.width, c.epsilon),
      head_bias(parallel::vocab_parameter(tp, c.vocab, nn::init::zeros())),
      next(c.width, 2) {
  for (nn::Parameter* weight : {&words.weight, &positions.weight, &types.weight, &pooler.weight,
                                &head.weight, &next.weight})
    weight->init = nn::init::normal(c.deviation);
  pooler.bias.init = head.bias.init = next.bias.init = nn::init::zeros();
  for (nn::Parameter* on_cut_tokens :
       {&positions.weight, &types.weight, &norm.weight, &norm.bias, &head.weight, &head.bias,
        &head_norm.weight, &head_norm.bias})
    on_cut_tokens->shard = tp.whole();
  for (int64_t layer = 0; layer < c.layers; ++layer) blocks.emplace_back(c, tp);
}

Tensor Bert::operator()(const BertInputs& in, Randomness random) const {
  Tensor h = encoded(in, random);
  if (!tp.splits_tokens()) return h;
  return reshape(gather_from(tp.group, h, 0, parallel::Consumer::replicated),
                 {in.ids.size(0), in.ids.size(1), config.width});
}

Tensor Bert::encoded(const BertInputs& in, Randomness random) const {
  check_inputs(in, config.max_length);
  int64_t B = in.ids.size(0), T = in.ids.size(1);
  Tensor mask = in.mask ? reshape(in.mask, {B, 1, 1, T}) : Tensor();
  random.tokens = TokenRows(tp, B, T);
  Philox forward;
  if (!drop.drops()) random.generator = nullptr;
  if (random.generator) forward = random.generator->next();
  auto run = [&](uint64_t place, auto f) {
    Generator own = detail::generator_of(forward, place);
    return f(random.with(random.generator ? &own : nullptr));
  };
  Tensor x = embedded(in, random.tokens);
  x = run(0, [&](const Randomness& r) { return drop(norm(x), r.generator, r.elements(x)); });
  for (size_t i = 0; i < blocks.size(); ++i)
    x = run(i + 1, [&](const Randomness& r) { return run_block(blocks[i], x, mask, r); });
  return x;
}

Tensor Bert::embedded(const BertInputs& in, const TokenRows& rows) const {
  const int64_t B = in.ids.size(0), T = in.ids.size(1);
  Tensor places = rows.is_cut() ? positions(rows.positions(B, in.ids.device()))
                                : slice(positions.weight, 0, 0, T);
  return words(in.ids) + places + types(rows.of(in.types));
}

Tensor Bert::run_block(const BertBlock& block, const Tensor& x, const Tensor& mask,
                       const Randomness& random) const {
  if (!recompute_blocks || !grad_enabled()) return block(x, mask, random);
  auto segment = [&block, mask, repeat = detail::Repeat(random)](const Tensors& in) {
    return Tensors{repeat([&](const Randomness& r) { return block(in[0], mask, r); })};
  };
  return recompute(segment, {x})[0];
}

Tensor Bert::own_word_logits(const parallel::TensorParallel& how, const Tensor& h) const {
  return column_linear(how, head_norm(gelu(head(h))), words.weight, head_bias);
}
Tensor Bert::word_logits(const Tensor& h) const {
  check(
      !tp.splits_tokens() || !grad_enabled(),
      "word_logits of a BERT whose tokens are cut has no gradient: train by loss(), evaluate under "
      "NoGrad");
  return gather_logits(tp.group, own_word_logits({tp.group}, h), config.vocab);
}

Tensor Bert::pooled(const Tensor& h) const { return tanh(pooler(select(h, 1, 0))); }

Tensor Bert::asked_for(const Tensor& h, const Tensor& places, int64_t tokens) const {
  return tp.splits_tokens() ? parallel::rows_of_parts(tp, h, places, tokens) : rows_at(h, places);
}

Tensor Bert::pooled_of(const Tensor& h, const BertInputs& in) const {
  if (!tp.splits_tokens()) return pooled(h);
  const int64_t tokens = in.ids.numel(), T = in.ids.size(1);
  Tensor first = contiguous(slice(arange(tokens, DType::i64, h.device()), 0, 0, tokens, T));
  return tanh(
      pooler(parallel::rows_of_parts({tp.group}, h, first, tokens)));  // the same on all ranks
}

BertLoss Bert::loss(const BertInputs& in, const BertTargets& targets, const Randomness& random,
                    int64_t ignore_index) const {
  Tensor h = encoded(in, random);
  const BertTargets t = tp.splits_tokens() ? padded(targets, tp.ranks(), ignore_index) : targets;
  const CrossEntropyOptions options{.ignore_index = ignore_index, .reduction = Reduction::sum};
  Tensor logits = own_word_logits(tp, asked_for(h, t.places, in.ids.numel()));
  Tensor of_words =
      vocab_cross_entropy(tp.group, std::move(logits), t.words, config.vocab, options);
  return {{of_words, count_targets(t.words, ignore_index, of_words.dtype())},
          nn::cross_entropy_sum(next_logits(pooled_of(h, in)), t.random, options)};
}

Tensor rows_at(const Tensor& h, const Tensor& places) {
  check(h.rank() == 3 && places && places.rank() == 1, "rows of h (B, T, C) at places (M), got ",
        h.describe(), " and ", places.describe());
  return index_select(reshape(h, {-1, h.size(2)}), 0, places);
}

}  // namespace gradus
