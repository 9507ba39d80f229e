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

Tensor Attention::operator()(const Tensor& x, Generator* generator, KvCache* cache) const {
  int64_t B = x.size(0), T = x.size(1);
  auto heads_first = [&](const Tensor& t) {  // (B, T, groups, n, d) → (B, heads, T, d)
    return permute(reshape(t, {B, T, -1, head_size_}), {0, 2, 1, 3});
  };
  Tensor packed = reshape(qkv(x), {B, T, groups_, per_group_ + 2, head_size_});
  Tensors parts = split(packed, {per_group_, 1, 1}, 3);
  Tensor q = heads_first(parts[0]), k = heads_first(parts[1]), v = heads_first(parts[2]);
  if (rotate_) {
    RopeOptions options{.base = rope_base_, .first_position = cache ? cache->length() : 0};
    q = rope(q, options);
    k = rope(k, options);
  }
  if (cache) std::tie(k, v) = cache->append(layer_, k, v);
  check(!drop.drops() || generator, "attention with dropout ", drop.p,
        " in training needs a generator: pass one, or call eval() of the module");
  Tensor y = attention(
      q, k, v, {.causal = true, .dropout = drop.drops() ? drop.p : 0, .generator = generator});
  return out(reshape(permute(y, {0, 2, 1, 3}), {B, T, groups_ * per_group_ * head_size_}));
}

}  // namespace gradus
