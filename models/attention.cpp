#include "models/attention.h"

namespace gradus {

Attention::Attention(const GptConfig& c, int64_t layer, const parallel::TensorParallel& tp)
    : qkv(c.width, (c.heads + 2 * c.key_value_heads()) * c.head_size(), tp, {.bias = c.bias}),
      out(c.width, c.width, tp, {.bias = c.bias}),
      drop(c.dropout),
      layer_(layer),
      head_size_(c.head_size()),
      heads_(tp, c.heads, c.key_value_heads()),
      rotate_(c.position == PositionKind::rope),
      rope_base_(c.rope_base) {
  qkv.weight.init = nn::init::normal(c.deviation);
  out.weight.init = nn::init::normal(c.residual_deviation());
  qkv.bias.init = out.bias.init = nn::init::zeros();
}

Tensor Attention::attend(const Tensor& x, const Randomness& random, KvCache* cache) const {
  check(!drop.drops() || random.generator, "attention with dropout ", drop.p,
        " in training needs a generator: pass one, or call eval() of the module");
  SelfAttentionOptions options{{.causal = true,
                                .dropout = drop.drops() ? drop.p : 0,
                                .generator = random.generator,
                                .head_rows = random.head_rows(heads_)}};
  if (rotate_)
    options.rope = RopeOptions{.base = rope_base_, .first_position = cache ? cache->length() : 0};
  Tensor packed = heads_.packed(qkv, x, random.tokens.length_of(x), head_size_, options);
  if (cache) return attend_with(*cache, packed, options);
  options.overwrite = true;
  return self_attention(packed, options);
}

Tensor Attention::attend_with(KvCache& cache, const Tensor& packed,
                              const SelfAttentionOptions& o) const {
  UnpackedHeads heads = unpack_heads(packed);
  if (o.rope) heads.q = rope(heads.q, *o.rope), heads.k = rope(heads.k, *o.rope);
  auto [k, v] = cache.append(layer_, heads.k, heads.v);
  return merge_heads(attention(heads.q, k, v, o));
}

}  // namespace gradus
