#include "models/bert.h"

#include "autograd/node.h"
#include "autograd/recompute.h"
#include "models/places.h"

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

}  // namespace

Bert::Bert(const BertConfig& c)
    : config(detail::valid(c)),
      words(c.vocab, c.width),
      positions(c.max_length, c.width),
      types(c.types, c.width),
      norm(c.width, c.epsilon),
      drop(c.dropout),
      pooler(c.width, c.width),
      head(c.width, c.width),
      head_norm(c.width, c.epsilon),
      head_bias({c.vocab}, nn::init::zeros()),
      next(c.width, 2) {
  for (nn::Parameter* weight : {&words.weight, &positions.weight, &types.weight, &pooler.weight,
                                &head.weight, &next.weight})
    weight->init = nn::init::normal(c.deviation);
  pooler.bias.init = head.bias.init = next.bias.init = nn::init::zeros();
  for (int64_t layer = 0; layer < c.layers; ++layer) blocks.emplace_back(c);
}

Tensor Bert::operator()(const BertInputs& in, Randomness random) const {
  check_inputs(in, config.max_length);
  int64_t B = in.ids.size(0), T = in.ids.size(1);
  Tensor mask = in.mask ? reshape(in.mask, {B, 1, 1, T}) : Tensor();
  Philox forward;
  if (!drop.drops()) random.generator = nullptr;
  if (random.generator) forward = random.generator->next();
  auto run = [&](uint64_t place, auto f) {
    Generator own = detail::generator_of(forward, place);
    return f(Randomness(random.generator ? &own : nullptr, random.first_sample));
  };
  Tensor x = words(in.ids) + slice(positions.weight, 0, 0, T) + types(in.types);
  x = run(0, [&](const Randomness& r) { return drop(norm(x), r.generator, r.elements(x)); });
  for (size_t i = 0; i < blocks.size(); ++i)
    x = run(i + 1, [&](const Randomness& r) { return run_block(blocks[i], x, mask, r); });
  return x;
}

Tensor Bert::run_block(const BertBlock& block, const Tensor& x, const Tensor& mask,
                       const Randomness& random) const {
  if (!recompute_blocks || !grad_enabled()) return block(x, mask, random);
  auto segment = [&block, mask, repeat = detail::Repeat(random)](const Tensors& in) {
    return Tensors{repeat([&](const Randomness& r) { return block(in[0], mask, r); })};
  };
  return recompute(segment, {x})[0];
}

Tensor Bert::word_logits(const Tensor& h) const {
  return linear(head_norm(gelu(head(h))), words.weight, head_bias);
}

Tensor Bert::pooled(const Tensor& h) const { return tanh(pooler(select(h, 1, 0))); }

BertLoss Bert::loss(const BertInputs& in, const BertTargets& targets, const Randomness& random,
                    int64_t ignore_index) const {
  Tensor h = (*this)(in, random);
  CrossEntropyOptions options{.ignore_index = ignore_index};
  return {nn::cross_entropy_sum(word_logits(rows_at(h, targets.places)), targets.words, options),
          nn::cross_entropy_sum(next_logits(pooled(h)), targets.random, options)};
}

Tensor rows_at(const Tensor& h, const Tensor& places) {
  check(h.rank() == 3 && places && places.rank() == 1, "rows of h (B, T, C) at places (M), got ",
        h.describe(), " and ", places.describe());
  return index_select(reshape(h, {-1, h.size(2)}), 0, places);
}

}  // namespace gradus
