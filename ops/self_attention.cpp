// Self-attention of heads that lie packed in one tensor, as one matrix product leaves them:
//
//   packed (B, T, G, n + 2, d)     G groups of n query heads, and the keys and values that they share
//
//   position t   │ q₀ … q_{n−1} k v │ q₀ … q_{n−1} k v │ …        one row of memory
//
// It is   split → rope → attention → merge the heads,   and where flash attention fits it is computed
// without moving anything: the kernels read queries, keys and values where they lie, positions are
// rotated in place, and the gradients of all three are written into one tensor laid out like `packed`,
// which is what the product's own backward wants. Split and concatenated as tensors of their own, the
// gradients would be read and written once more. The gradient of the product's bias, their sum over all
// rows, comes from here too: the kernels sum on the way (ops/flash_attention.cu).
#include <cmath>

#include "autograd/accumulate.h"
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/flash_attention.h"
#include "ops/gemm_tensor.h"
#include "ops/rope.h"
#include "ops/sum_parts.h"

namespace gradus {
namespace {

/// What of packed (B, T, G, n + 2, d) is attended with: views, no copies.
struct Parts {
  Tensor q;        // (B, G, n, T, d)
  Tensor k, v;     // (B, G, T, d)
  Tensor rotated;  // (B, G, n + 1, T, d): queries and keys

  explicit Parts(const Tensor& packed) {
    const Shape& n = packed.shape();
    const Strides& s = packed.strides();
    int64_t queries = n[3] - 2;
    auto members = [&](int64_t count) {
      return packed.alias({n[0], n[2], count, n[1], n[4]}, {s[0], s[2], s[3], s[1], s[4]},
                          packed.offset());
    };
    auto member = [&](int64_t i) {
      return packed.alias({n[0], n[2], n[1], n[4]}, {s[0], s[2], s[1], s[4]},
                          packed.offset() + i * s[3]);
    };
    q = members(queries), rotated = members(queries + 1);
    k = member(queries), v = member(queries + 1);
  }
};

/// (B, T, G·n·d) as (B, G, n, T, d).
Tensor heads_of(const Tensor& y, const Tensor& like) {
  int64_t B = like.size(0), G = like.size(1), n = like.size(2), T = like.size(3), d = like.size(4);
  return y.alias({B, G, n, T, d}, {T * G * n * d, n * d, d, G * n * d, 1}, y.offset());
}

/// (B, T, G, n + 2, d) as (B, T, columns), which the product before has left.
Tensor flatten(const Tensor& x) {
  return reshape(x, {x.size(0), x.size(1), x.size(2) * x.size(3) * x.size(4)});
}

struct SelfAttention {
  static constexpr auto name = "self_attention";
  SelfAttentionOptions options{};
  double scale = 1;
  Philox stream{};  // of dropout
  bool has_bias = false;
  Saved packed{};  // rotated
  SavedOutput o{};
  Tensor lse{};  // (B, G·n, T)

  FlashInputs inputs(const Parts& p) const {
    return {.q = p.q,
            .k = p.k,
            .v = p.v,
            .causal = options.causal,
            .scale = scale,
            .stream = stream,
            .head_rows = options.head_rows,
            .threshold = drop_threshold(options.dropout),
            .keep_scale = 1 / (1 - options.dropout)};
  }

  Tensor forward(const Tensor& input, const Tensor& bias) {
    has_bias = bool(bias);
    Tensor x = input;
    if (options.rope) {
      if (!options.overwrite) x = clone_values(input);
      Tensor rows = Parts(x.detach()).rotated;
      rotate_into(rows, rows, *options.rope);
    }
    packed = x;
    Parts p(x.detach());
    int64_t B = p.q.size(0), heads = p.q.size(1) * p.q.size(2), T = p.q.size(3), d = p.q.size(4);
    Tensor y = empty({B, T, heads * d}, x.dtype(), x.device());
    lse = empty({B, heads, T}, DType::f32, x.device());
    flash_forward(inputs(p), heads_of(y, p.q), lse);
    o = y;
    return y;
  }

  Tensors backward(const Tensor& gradient, Needs need) {
    Parts p(packed->detach());
    Tensor dx = empty(packed->shape(), packed->dtype(), packed->device());
    Parts to(dx);
    bool readable = gradient.is_contiguous() && flash_attention_reads(gradient);
    Tensor dy = readable ? gradient.detach() : contiguous(gradient);
    const bool bias_wanted = has_bias && need[1];
    Tensor parts = flash_backward(inputs(p), heads_of(*o, p.q), lse, heads_of(dy, p.q),
                                  {to.q, to.k, to.v}, bias_wanted && !options.rope);
    if (options.rope) rotate_into(to.rotated, to.rotated, *options.rope, true);
    if (!bias_wanted) return {dx, {}};
    if (parts)
      return {dx, sum_parts(reshape(parts, {parts.size(0), 1, -1}), dx.dtype(), {need[1]})[0]};
    return {dx, bias_gradient(rows_of(flatten(dx)), need[1])};
  }
};

/// packed, whose rows have the term `bias` in them already.
struct AddedBias {
  static constexpr auto name = "added_bias";
  Tensor forward(const Tensor& packed, const Tensor&) {
    return packed.alias(packed.shape(), packed.strides(), packed.offset());
  }
  Tensors backward(const Tensor& dy, Needs need) {
    return {dy, bias_gradient(rows_of(flatten(dy)), need[1])};
  }
  Tensors backward_recorded(const Tensor& dy, Needs need) {
    return {dy, need[1] ? sum(flatten(dy), {0, 1}) : Tensor{}};
  }
};

}  // namespace

static void check_packed(const Tensor& packed) {
  check(packed && packed.rank() == 5 && packed.size(3) >= 3,
        "packed heads are (B, T, groups, heads of a group + 2, d), got ", packed.describe());
}

UnpackedHeads unpack_heads(const Tensor& packed) {
  check_packed(packed);
  int64_t B = packed.size(0), T = packed.size(1), d = packed.size(4), n = packed.size(3) - 2;
  Tensors parts = split(packed, {n, 1, 1}, 3);
  auto heads_first = [&](const Tensor& x) {
    return permute(reshape(x, {B, T, x.size(2) * x.size(3), d}), {0, 2, 1, 3});
  };
  return {heads_first(parts[0]), heads_first(parts[1]), heads_first(parts[2])};
}

Tensor merge_heads(const Tensor& x) {
  check(x && x.rank() == 4, "heads to merge are (B, H, T, d), got ", x.describe());
  return reshape(permute(x, {0, 2, 1, 3}), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

Tensor self_attention(const Tensor& packed, SelfAttentionOptions o) {
  check_packed(packed);
  check_map("self_attention: head_rows", o.head_rows);
  const int64_t columns = packed.size(2) * packed.size(3) * packed.size(4);
  check(!o.bias || (o.bias.shape() == Shape{columns} && o.bias.dtype() == packed.dtype() &&
                    o.bias.device() == packed.device()),
        "self_attention: bias ", o.bias.describe(), "; needed are ", columns,
        " numbers, one for each column of ", packed.describe());
  double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(double(packed.size(4)));
  bool drops = o.dropout > 0 && o.dropout < 1 && o.generator;
  if (!o.mask && !o.lengths && (o.dropout == 0 || drops) && scale > 0 && packed.is_contiguous()) {
    Parts p(packed.detach());
    if (flash_attention_fits(p.q, p.k, p.v)) {
      Philox stream = o.dropout > 0 ? o.generator->next() : Philox{};
      Tensor bias = std::exchange(o.bias, {});
      return apply(SelfAttention{.options = o, .scale = scale, .stream = stream}, packed, bias);
    }
  }
  UnpackedHeads heads = unpack_heads(o.bias ? apply(AddedBias{}, packed, o.bias) : packed);
  if (o.rope) heads.q = rope(heads.q, *o.rope), heads.k = rope(heads.k, *o.rope);
  return merge_heads(attention(heads.q, heads.k, heads.v, o));
}

static Tensor with_bias(const Tensor& packed, const Tensor& bias) {
  SelfAttentionOptions o;
  o.bias = bias;
  return self_attention(packed, o);
}

static const Gradcheck checks[] = {
    {"self_attention",
     [](Sampler& s) {
       return self_attention(s.normal({2, 3, 2, 4, 6}), {{.causal = true}});
     },
     false, 64},
    {"self_attention",
     [](Sampler& s) {
       return self_attention(s.normal({1, 5, 2, 3, 64}),
                             {{.causal = true}, RopeOptions{.base = 500}});
     },
     false, 64},
    {"self_attention",
     [](Sampler& s) {
       return self_attention(s.normal({2, 3, 1, 4, 64}));
     },
     false, 64},
    {"added_bias",
     [](Sampler& s) {
       Tensor x = s.normal({2, 3, 4}), w = s.normal({18, 4}) * 0.5, b = s.normal({18});
       return with_bias(reshape(linear(x, w, b.detach()), {2, 3, 2, 3, 3}), b);
     },
     false, 64},
    {"self_attention",
     [](Sampler& s) {
       Tensor x = s.normal({2, 3, 4}), w = s.normal({192, 4}) * 0.5, b = s.normal({192});
       Tensor packed = reshape(linear(x, w, b.detach()), {2, 3, 1, 3, 64});
       return with_bias(packed, b);
     },
     false, 64},
};

}  // namespace gradus
