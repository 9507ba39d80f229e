// Attention [Vaswani et al. 2017] with grouped heads [Ainslie et al. 2023]: q has H heads, k and v have
// H/G; query head h attends to key head h/G.
//
//   S = Q Kᵀ/√d + mask,   P = softmax(S),   P̃ = P ⊙ m/(1 − p) (dropout),   O = P̃ V
//
// With dP = (dO Vᵀ) ⊙ m/(1 − p), and δ_i = Σ_j P_ij dP_ij = dO_i · O_i, from the softmax's own backward:
//
//   dV = P̃ᵀ dO,   dS = P ⊙ (dP − δ),   dQ = dS K/√d,   dK = dSᵀ Q/√d;    dK, dV summed over the group
//
// The mask. Causal: query i sees keys j ≤ i + Tk − Tq, so the last query sees all keys, also when there
// are fewer queries than keys (decoding with a cache). A u8 mask selects: 0 hides a key, whatever stands
// there. A floating mask is added by IEEE rules: −∞ hides a key, NaN shows. A finite penalty hides
// nothing. A row that sees no key is 0, and so are its gradients.
//
// Three ways to compute it: blocks on the CPU (ops/attention_cpu.h); on a GPU flash attention where it
// fits (ops/flash_attention.h), else the explicit path here, which stores P.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/attention_cpu.h"
#include "ops/attention_cuda.h"
#include "ops/flash_attention.h"
#include "ops/gemm_tensor.h"
#include "ops/map.h"
#include "ops/ops.h"

namespace gradus {
namespace {

/// (B, H, T, d), lying in memory as (B, T, H, d): merging the heads afterwards costs nothing.
Tensor empty_heads(const Tensor& like, DType dtype) {
  int64_t B = like.size(0), H = like.size(1), T = like.size(2), d = like.size(3);
  return empty({B, T, H, d}, dtype, like.device()).alias({B, H, T, d}, {T * H * d, d, H * d, 1}, 0);
}

/// x with rows of d that are contiguous and do not overlap.
Tensor with_rows(const Tensor& x) {
  bool contiguous_rows = x.strides()[3] == 1 || x.size(3) == 1;
  bool apart = x.strides()[2] >= x.size(3) || x.size(2) <= 1;
  return contiguous_rows && apart ? x : contiguous(x);
}

/// The mask as a view of shape (B, H, Tq, Tk).
Tensor full_mask(const Tensor& mask, const Tensor& q, const Tensor& k) {
  return expand(mask, {q.size(0), q.size(1), q.size(2), k.size(2)});
}

/// (B, 1, 1, Tk) of u8: key j of sequence b shows if j < lengths[b].
Tensor mask_of(const Tensor& lengths, int64_t keys) {
  return less(arange(keys, DType::i32, lengths.device()), reshape(lengths, {lengths.size(0), 1, 1, 1}));
}

/// k or v with 0 in the rows that the mask hides from every query: NaN may stand there.
Tensor without_hidden(const Tensor& x, const Tensor& mask) {
  if (!mask || mask.numel() == 0 || x.numel() == 0) return x;
  auto number = [&](double v, DType t) { return full({}, v, t, x.device()); };
  Tensor shows = mask.dtype() == DType::u8 ? mask : not_equal(mask, number(-INFINITY, mask.dtype()));
  Tensor seen = max(cast(shows, DType::f32), {1, 2}, true);  // (B, 1, 1, Tk)
  Tensor rows = expand(transpose(greater(seen, number(0, DType::f32)), 2, 3),
                       {mask.size(0), 1, x.size(2), 1});
  return where(rows, x, number(0, x.dtype()));
}
/// k likewise. An additive mask does not shield it: NaN − ∞ is NaN.
Tensor keys_without_hidden(const Tensor& k, const Tensor& mask) {
  return mask && mask.dtype() == DType::u8 ? without_hidden(k, mask) : k;
}

struct Attention {
  static constexpr auto name = "attention";
  AttentionOptions options{};
  Philox stream{};
  Saved q{}, k{}, v{}, mask{};
  SavedOutput o{};
  Tensor rows{};  // (B, H, Tq): lse of flash, max and inverse (…, 2) on the CPU; (…, Tk): P, explicit
  bool flash = false;

  Tensor forward(const Tensor& Q, const Tensor& K, const Tensor& V) {
    q = Q, k = K, v = V, mask = options.mask;
    Tensor y;
    bool general = options.mask || options.dropout == 1 || options.scale <= 0;
    flash = !general && flash_attention_fits(Q, K, V);
    if (!flash && options.lengths) mask = mask_of(options.lengths, K.size(2));
    if (flash) {
      y = empty_heads(Q, Q.dtype());
      rows = empty({Q.size(0), Q.size(1), Q.size(2)}, DType::f32, Q.device());
      int64_t groups = K.size(1);
      flash_forward(flash_inputs(Q, K, V), grouped(y, groups), rows);
    } else {
      y = Q.device().is_cuda() ? forward_cuda() : forward_cpu();
    }
    if (flash) o = y;
    return y;
  }

  Tensors backward(const Tensor& dy) {
    if (flash) {
      int64_t groups = k->size(1);
      Tensor dq = empty_heads(*q, q->dtype()), dk = empty_heads(*k, k->dtype()),
             dv = empty_heads(*v, v->dtype());
      flash_backward(flash_inputs(*q, *k, *v), grouped(*o, groups), rows,
                     grouped(flash_attention_reads(dy) ? dy : contiguous(dy), groups), {grouped(dq, groups), dk, dv});
      return {dq, dk, dv};
    }
    return q->device().is_cuda() ? backward_cuda(dy) : backward_cpu(dy);
  }

 private:
  FlashInputs flash_inputs(const Tensor& Q, const Tensor& K, const Tensor& V) const {
    return {.q = grouped(Q.detach(), K.size(1)), .k = K.detach(), .v = V.detach(),
            .causal = options.causal, .scale = options.scale, .lengths = options.lengths,
            .stream = stream, .head_rows = options.head_rows, .threshold = threshold(),
            .keep_scale = keep_scale()};
  }

  uint64_t threshold() const { return drop_threshold(options.dropout); }
  double keep_scale() const { return options.dropout < 1 ? 1 / (1 - options.dropout) : 0; }

  // ---- CPU: 16-bit operands are computed in f32 and rounded once

  static DType arithmetic(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
  static Tensor operand(const Tensor& x) { return with_rows(cast(x.detach(), arithmetic(x.dtype()))); }

  template <class A, class E>
  static attention_cpu::Rows<E> view(const Tensor& x) {
    int64_t row = x.size(2) > 1 ? x.strides()[2] : x.size(3);  // the stride of one row is arbitrary
    return {x.data<A>(), x.strides()[0], x.strides()[1], row};
  }

  /// Calls f(problem) for operands in arithmetic precision, which it keeps alive.
  template <class F>
  void with_problem(F f) {
    Tensor m = *mask ? full_mask(*mask, *q, *k) : Tensor();
    if (m && m.dtype() != DType::u8) m = cast(m, arithmetic(m.dtype()));
    Tensor Q = operand(*q), K = operand(keys_without_hidden(*k, *mask)), V = operand(without_hidden(*v, *mask));
    auto run = [&]<class A>() {
      attention_cpu::Problem<A> p{.batch = Q.size(0), .heads = Q.size(1), .group = Q.size(1) / K.size(1),
                                  .tq = Q.size(2), .tk = K.size(2), .d = Q.size(3),
                                  .scale = A(options.scale), .causal = options.causal, .mask = {},
                                  .stream = stream, .head_rows = options.head_rows,
                                  .threshold = threshold(),
                                  .keep_scale = A(keep_scale()), .q = view<A, const A>(Q),
                                  .k = view<A, const A>(K), .v = view<A, const A>(V)};
      if (m) {
        if (m.dtype() == DType::u8) p.mask.visible = m.data<uint8_t>();
        else p.mask.added = m.data<A>();
        for (int i = 0; i < 4; ++i) p.mask.strides[i] = m.strides()[i];
      }
      f(p);
    };
    arithmetic(q->dtype()) == DType::f64 ? run.template operator()<double>() : run.template operator()<float>();
  }

  Tensor forward_cpu() {
    DType type = arithmetic(q->dtype());
    Tensor y = empty_heads(*q, type);
    rows = empty({q->size(0), q->size(1), q->size(2), 2}, type);
    with_problem([&]<class A>(const attention_cpu::Problem<A>& p) {
      attention_cpu::forward(p, view<A, A>(y), static_cast<attention_cpu::Scale<A>*>(rows.raw()));
    });
    return cast(y, q->dtype());
  }

  Tensors backward_cpu(const Tensor& dy) {
    DType type = arithmetic(q->dtype());
    Tensor dq = empty_heads(*q, type), dk = empty_heads(*k, type), dv = empty_heads(*v, type);
    Tensor d_o = operand(dy);
    with_problem([&]<class A>(const attention_cpu::Problem<A>& p) {
      const auto* scale = static_cast<const attention_cpu::Scale<A>*>(rows.raw());
      attention_cpu::backward(p, {view<A, const A>(d_o), scale, view<A, A>(dq), view<A, A>(dk), view<A, A>(dv)});
    });
    return {cast(dq, q->dtype()), cast(dk, q->dtype()), cast(dv, q->dtype())};
  }

  // ---- CUDA, explicit. Heads as (B, groups, heads of a group, T, d), keys as (B, groups, 1, T, d).

  static Tensor grouped(const Tensor& x, int64_t groups) {
    int64_t G = x.size(1) / groups;
    const Strides& s = x.strides();
    return x.alias({x.size(0), groups, G, x.size(2), x.size(3)}, {s[0], s[1] * G, s[1], s[2], s[3]},
                   x.offset());
  }

#if defined(__CUDACC__)
  attention_cuda::Rows row_problem(const Tensor& m) const {
    attention_cuda::Rows p{.rows = q->size(0) * q->size(1) * q->size(2), .tk = k->size(2),
                           .tq = q->size(2), .heads = q->size(1), .scale = options.scale,
                           .causal = options.causal, .visible = nullptr, .added = nullptr, .strides = {},
                           .stream = stream, .head_rows = options.head_rows, .threshold = threshold(),
                           .keep_scale = keep_scale()};
    if (m) {
      m.dtype() == DType::u8 ? (void)(p.visible = m.data<uint8_t>()) : (void)(p.added = m.raw());
      for (int i = 0; i < 4; ++i) p.strides[i] = m.strides()[i];
    }
    return p;
  }

  template <class F>
  void launch(const Tensor& scores, F f) const {
    if (scores.numel() == 0) return;
    dispatch_floating(name, scores.dtype(), f);
    cuda::check_launch("attention rows kernel");
  }

  Tensor forward_cuda() {
    int64_t groups = k->size(1);
    Tensor m = *mask ? full_mask(*mask, *q, *k) : Tensor();
    Tensor K = keys_without_hidden(*k, *mask).detach(), V = without_hidden(*v, *mask).detach();
    Tensor y = empty_heads(*q, q->dtype()), dropped;
    rows = empty({q->size(0), q->size(1), q->size(2), k->size(2)}, q->dtype(), q->device());
    Tensor scores = empty(rows.shape(), arithmetic(q->dtype()), q->device());
    if (threshold()) dropped = empty_like(rows);
    gemm_into(grouped(scores, groups), grouped(q->detach(), groups), t(grouped(K, groups)), 0);
    attention_cuda::Rows p = row_problem(m);
    launch(rows, [&]<class T>() {
      attention_cuda::softmax_rows<T><<<unsigned(p.rows), 128, 0, cuda::stream(rows.device())>>>(
          p, scores.data<Compute<T>>(), rows.data<T>(), dropped ? dropped.data<T>() : nullptr);
    });
    gemm_into(grouped(y, groups), grouped(dropped ? dropped : rows, groups), grouped(V, groups), 0);
    return y;
  }

  Tensors backward_cuda(const Tensor& dy) {
    int64_t groups = k->size(1);
    Tensor K = keys_without_hidden(*k, *mask).detach(), V = without_hidden(*v, *mask).detach();
    Tensor Q = grouped(q->detach(), groups), dO = grouped(dy.detach(), groups);
    Tensor P = grouped(rows, groups), dropped = P;
    Tensor dP = empty(rows.shape(), arithmetic(q->dtype()), q->device());
    Tensor dS = dP.dtype() == rows.dtype() ? dP : empty_like(rows);
    attention_cuda::Rows p = row_problem({});
    unsigned blocks = unsigned(p.rows);
    cudaStream_t stream_ = cuda::stream(rows.device());
    if (p.threshold) {
      Tensor kept = empty_like(rows);
      launch(rows, [&]<class T>() {
        attention_cuda::drop_rows<<<blocks, 128, 0, stream_>>>(p, rows.data<T>(), kept.data<T>());
      });
      dropped = grouped(kept, groups);
    }
    gemm_into(grouped(dP, groups), dO, t(grouped(V, groups)), 0);
    launch(rows, [&]<class T>() {
      attention_cuda::softmax_rows_backward<T><<<blocks, 128, 0, stream_>>>(
          p, rows.data<T>(), dP.data<Compute<T>>(), dS.data<T>());
    });
    Tensor dq = empty_heads(*q, q->dtype());
    gemm_into(grouped(dq, groups), grouped(dS, groups), grouped(K, groups), 0);
    Tensor dk = gemm(t(grouped(dS, groups)), Q), dv = gemm(t(dropped), dO);
    return {dq, squeeze(sum(dk, {2}, true), 2), squeeze(sum(dv, {2}, true), 2)};
  }
#else
  Tensor forward_cuda() { fail("attention: this file was compiled without CUDA"); }
  Tensors backward_cuda(const Tensor&) { fail("attention: this file was compiled without CUDA"); }
#endif
};

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  detail::check_operands("attention", q, k, v);
  bool ranks = q.rank() == 4 && k.rank() == 4 && v.shape() == k.shape();
  check(ranks && q.size(0) == k.size(0) && q.size(3) == k.size(3) && k.size(1) > 0 &&
            q.size(1) % k.size(1) == 0,
        "attention: q ", q.shape(), ", k ", k.shape(), ", v ", v.shape(),
        "; needed are (B, H, Tq, d), (B, Hkv, Tk, d) twice, H a multiple of Hkv");
  check(o.dropout >= 0 && o.dropout <= 1, "attention: dropout ", o.dropout, " is no probability");
  check(o.dropout == 0 || o.generator, "attention: dropout needs a generator");
  check_map("attention: head_rows", o.head_rows);
  check(!o.lengths || (o.lengths.shape() == Shape{q.size(0)} && o.lengths.dtype() == DType::i32 &&
                       o.lengths.device() == q.device() && !o.mask),
        "attention: lengths ", o.lengths.describe(), "; needed is one i32 a sequence on ", q.device(),
        ", and no mask beside them");
  if (!o.mask) return;
  check(o.mask.rank() == 4 && (o.mask.dtype() == DType::u8 || o.mask.dtype() == q.dtype()) &&
            o.mask.device() == q.device(),
        "attention: mask ", o.mask.describe(), "; needed is u8 or ", q.dtype(),
        " on ", q.device(), ", four dimensions that broadcast to (B, H, Tq, Tk)");
  check(!o.mask.requires_grad(), "attention: no gradient is computed for the mask ", o.mask.describe());
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options) {
  check_attention(q, k, v, options);
  if (options.scale == 0) options.scale = 1 / std::sqrt(double(q.size(3)));
  Philox stream = options.dropout > 0 ? options.generator->next() : Philox{};
  return apply(Attention{.options = options, .stream = stream}, q, k, v);
}

static const Gradcheck checks[] = {
    {"attention",
     [](Sampler& s) { return attention(s.normal({2, 2, 3, 4}), s.normal({2, 2, 5, 4}), s.normal({2, 2, 5, 4})); },
     false, 64},
    {"attention",
     [](Sampler& s) {
       return attention(s.normal({2, 4, 5, 3}), s.normal({2, 2, 5, 3}), s.normal({2, 2, 5, 3}), {.causal = true});
     },
     false, 64},
    {"attention",  // queries 0 and 1 see nothing
     [](Sampler& s) {
       return attention(s.normal({1, 2, 4, 3}), s.normal({1, 1, 2, 3}), s.normal({1, 1, 2, 3}), {.causal = true});
     },
     false, 64},
    {"attention",
     [](Sampler& s) {
       Tensor mask = s.mask({2, 1, 1, 5});
       Generator g(5);
       return attention(s.normal({2, 2, 3, 4}), s.normal({2, 2, 5, 4}), s.normal({2, 2, 5, 4}),
                        {.mask = mask, .dropout = 0.3, .generator = &g});
     },
     false, 64},
    {"attention",  // heads 2 and 3 of 6
     [](Sampler& s) {
       Generator g(5);
       return attention(s.normal({2, 2, 3, 4}), s.normal({2, 2, 5, 4}), s.normal({2, 2, 5, 4}),
                        {.dropout = 0.3, .generator = &g,
                         .head_rows = {.first = 2, .run = 2, .stride = 6}});
     },
     false, 64},
    {"attention",
     [](Sampler& s) {
       Tensor bias = s.constant({1, 2, 3, 5});
       return attention(s.normal({2, 2, 3, 4}), s.normal({2, 1, 5, 4}), s.normal({2, 1, 5, 4}), {.mask = bias});
     },
     false, 64},
    {"attention",
     [](Sampler& s) {
       Generator g(6);
       Tensor lengths = to(tensor({3, 0}, {2}, DType::i32), s.device());
       return attention(s.normal({2, 2, 3, 64}), s.normal({2, 2, 5, 64}), s.normal({2, 2, 5, 64}),
                        {.lengths = lengths, .dropout = 0.3, .generator = &g});
     },
     false, 64},
    {"attention",
     [](Sampler& s) { return attention(s.normal({0, 2, 3, 4}), s.normal({0, 2, 5, 4}), s.normal({0, 2, 5, 4})); }},
};

}  // namespace gradus
