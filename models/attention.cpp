#include "models/attention.h"

namespace gradus {

Attention::Attention(const GptConfig& c, int64_t layer)
    : qkv(c.width, (c.heads + 2 * c.key_value_heads()) * c.head_size(), c.bias),
      out(c.width, c.width, c.bias),
      drop(c.dropout),
      layer_(layer),
      groups_(c.key_value_heads()),
      per_group_(c.heads / c.key_value_heads()),
      head_size_(c.head_size()),
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
                                .head_rows = random.head_rows(groups_ * per_group_)}};
  if (rotate_)
    options.rope = RopeOptions{.base = rope_base_, .first_position = cache ? cache->length() : 0};
  Tensor packed = reshape(qkv(x), {x.size(0), x.size(1), groups_, per_group_ + 2, head_size_});
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
