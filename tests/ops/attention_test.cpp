// Attention: hand-computed values, the rules for masks, and its three ways of computing (blocks on the
// CPU, explicit and flash on a GPU) against the formula written in recorded ops in f64.
#include <gtest/gtest.h>

#include <cmath>

#include "core/allocator.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
constexpr double kInf = INFINITY;

struct Result {
  Values o, dq, dk, dv;
};

/// Attention of leaves q, k, v and its gradients for dO.
Result run(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dy,
           AttentionOptions options = {}) {
  PoisonAllocations poison;
  for (const Tensor& t : {q, k, v}) t.requires_grad_();
  Tensor o = attention(q, k, v, options);
  Tensors d = grad(o, {q, k, v}, dy);
  return {o.to_vector(), d[0].to_vector(), d[1].to_vector(), d[2].to_vector()};
}

/// Relative to the largest element, or 1: the others are sums of terms of that size.
void expect_near(const Values& got, const Values& want, double tolerance, const char* what = "") {
  ASSERT_EQ(got.size(), want.size());
  double largest = 1;
  for (double v : want) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * largest) << what << ", element " << i;
}
void expect_near(const Result& got, const Result& want, double tolerance) {
  expect_near(got.o, want.o, tolerance, "o");
  expect_near(got.dq, want.dq, tolerance, "dq");
  expect_near(got.dk, want.dk, tolerance, "dk");
  expect_near(got.dv, want.dv, tolerance, "dv");
}
void expect_same(const Result& a, const Result& b) {
  EXPECT_EQ(a.o, b.o);
  EXPECT_EQ(a.dq, b.dq);
  EXPECT_EQ(a.dk, b.dk);
  EXPECT_EQ(a.dv, b.dv);
}
bool all_finite(const Result& r) {
  for (const Values* v : {&r.o, &r.dq, &r.dk, &r.dv})
    for (double x : *v)
      if (!std::isfinite(x)) return false;
  return true;
}

/// Elements [begin, end) of v.
Values part(const Values& v, size_t begin, size_t end) {
  return Values(v.begin() + long(begin), v.begin() + long(end));
}

/// Uneven numbers that lie in memory as (B, T, H, d), seen as (B, H, T, d).
Tensor heads(Generator& g, const Shape& s, DType t, Device device) {
  return permute(normal({s[0], s[2], s[1], s[3]}, g, 0, 1, t, device), {0, 2, 1, 3});
}

struct Inputs {
  Tensor q, k, v, dy;
  Inputs(const Shape& queries, const Shape& keys, DType t, Device device, uint64_t seed = 1) {
    Generator g(seed);
    q = heads(g, queries, t, device), k = heads(g, keys, t, device), v = heads(g, keys, t, device);
    dy = heads(g, queries, t, device);
  }
  Result run(AttentionOptions options = {}) const {
    return gradus::run(q.detach(), k.detach(), v.detach(), dy, options);
  }
  /// The same numbers in f64 on the CPU, by the formula.
  Result formula(AttentionOptions options = {}) const;
};

Tensor in_f64(const Tensor& x) { return to(cast(x, DType::f64), kCpu).detach(); }

Result Inputs::formula(AttentionOptions options) const {
  Tensor Q = in_f64(q), K = in_f64(k), V = in_f64(v);
  for (const Tensor& t : {Q, K, V}) t.requires_grad_();
  int64_t B = Q.size(0), H = Q.size(1), G = H / K.size(1), Tq = Q.size(2), Tk = K.size(2),
          d = Q.size(3);
  auto repeated = [&](const Tensor& x) {  // each key head for G query heads
    return reshape(expand(unsqueeze(x, 2), {B, H / G, G, Tk, d}), {B, H, Tk, d});
  };
  Tensor scores = mul(matmul(Q, transpose(repeated(K), 2, 3)),
                      options.scale ? options.scale : 1 / std::sqrt(double(d)));
  if (options.causal) {
    Values hidden;
    for (int64_t i = 0; i < Tq; ++i)
      for (int64_t j = 0; j < Tk; ++j) hidden.push_back(j > i + Tk - Tq);
    scores = masked_fill(scores, tensor(hidden, {Tq, Tk}, DType::u8), -kInf);
  }
  if (options.mask && options.mask.dtype() == DType::u8)
    scores = where(to(options.mask, kCpu), scores, full({}, -kInf, DType::f64));
  else if (options.mask)
    scores = add(scores, in_f64(options.mask));
  Tensor o = matmul(softmax(scores), repeated(V));
  Tensors dx = grad(o, {Q, K, V}, in_f64(dy));
  return {o.to_vector(), dx[0].to_vector(), dx[1].to_vector(), dx[2].to_vector()};
}

// ---- by hand

struct ByHand {
  Tensor q, k, v, dy;
  ByHand(DType t, Device device) {
    auto matrix = [&](Values x) { return tensor(x, {1, 1, 3, 2}, t, device); };
    q = matrix({1, 0, 0.5, -1, 2, 1}), k = matrix({0.2, 1, -1, 0.5, 1, 1});
    v = matrix({1, 2, 3, -1, 0.5, 0.25}), dy = matrix({0.3, -0.7, 1.1, 0.2, -0.4, 0.6});
  }
};

/// The references have 9 digits. A gradient is a chain of three products of sums of 2 or 3 terms and a
/// softmax, about 16 roundings; 16-bit inputs are rounded themselves, and once more on the way.
double tolerance(DType t) { return 5e-9 + 32 * roundoff(t); }

TEST(Attention, CausalByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      ByHand in(t, device);
      Result want{
          {1, 2, 1.96465938, 0.553010923, 0.694307565, 0.625820521},
          {0, 0, -0.338987344, -0.141244727, -0.0122847862, 0.0204144418},
          {0.0936116566, 0.399917645, 0.0595869597, -0.323318337, -0.153198616, -0.0765993081},
          {0.774842478, -0.454573647, 0.518392423, 0.114721296, -0.293234901, 0.439852352}};
      expect_near(run(in.q, in.k, in.v, in.dy, {.causal = true}), want, tolerance(t));
    }
}

TEST(Attention, WithoutMaskByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      ByHand in(t, device);
      expect_near(run(in.q, in.k, in.v, in.dy).o,
                  {0.992398749, 0.631015742, 1.36825765, 0.429626439, 0.694307565, 0.625820521},
                  tolerance(t));
    }
}

/// A generator whose next stream keeps just those of the scores that `kept` says, with p = ½.
Generator generator_that_keeps(const std::vector<bool>& kept) {
  for (uint64_t seed = 0;; ++seed) {
    Philox stream = Generator(seed).next();
    bool fits = true;
    for (size_t i = 0; i < kept.size() && fits; ++i)
      fits = stream.keep(i, drop_threshold(0.5)) == kept[i];
    if (fits) return Generator(seed);
  }
}

TEST(Attention, DropoutByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      ByHand in(t, device);
      Generator g = generator_that_keeps({1, 0, 1, 0, 1, 1, 1, 1, 0});
      Result r = run(in.q, in.k, in.v, in.dy, {.dropout = 0.5, .generator = &g});
      expect_near(r.o, {1.17936957, 1.53050746, 2.12276003, -0.368257646, 0.655527877, 0.885097416},
                  tolerance(t));
      expect_near(
          r.dq,
          {0.126772945, -0.0340548671, -1.20006101, -0.398157195, -0.0116081775, 0.0416174708},
          tolerance(t));
    }
}

// ---- against the formula

TEST(Attention, EqualsTheFormula) {
  struct Case {
    Shape queries, keys;
    bool causal;
  };
  for (Device device : test_devices())
    for (DType t : {DType::f64, DType::f32, DType::bf16})
      for (const Case& c :
           {Case{{2, 3, 150, 8}, {2, 3, 150, 8}, true}, Case{{1, 4, 70, 5}, {1, 2, 133, 5}, false},
            Case{{2, 2, 100, 16}, {2, 1, 40, 16}, true},
            Case{{1, 6, 65, 4}, {1, 2, 200, 4}, true}}) {
        Inputs in(c.queries, c.keys, t, device);
        // Sums of up to 200 terms of random signs: √200 roundings, in three products and a softmax.
        double most = t == DType::f64 ? 1e-12 : 64 * roundoff(t);
        if (!c.causal || c.queries[2] <= c.keys[2])
          expect_near(in.run({.causal = c.causal}), in.formula({.causal = c.causal}), most);
        Generator g(9);
        Tensor bias = normal({1, c.queries[1], c.queries[2], c.keys[2]}, g, 0, 1, t, device);
        expect_near(in.run({.mask = bias, .scale = 0.7}), in.formula({.mask = bias, .scale = 0.7}),
                    most);
      }
}

TEST(Attention, ResultLiesInMemoryWithHeadsBesideEachOther) {
  for (Device device : test_devices()) {
    Inputs in({2, 3, 5, 4}, {2, 3, 7, 4}, DType::f32, device);
    Tensor merged = permute(attention(in.q, in.k, in.v), {0, 2, 1, 3});
    EXPECT_TRUE(merged.is_contiguous());
    EXPECT_EQ(merged.shape(), Shape({2, 5, 3, 4}));
  }
}

TEST(Attention, G6_OperandsOfEveryLayoutEqualTheirCopies) {
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16}) {
      Generator g(2);
      Tensor packed = normal({2, 6, 3, 4, 8}, g, 0, 1, t, device);  // (B, T, qkv, H, d)
      auto of_packed = [&](int64_t i) { return permute(select(packed, 2, i), {0, 2, 1, 3}); };
      Tensor q = of_packed(0), k = of_packed(1), v = of_packed(2);
      Tensor dy = transpose(normal({2, 4, 8, 6}, g, 0, 1, t, device), 2, 3);
      auto copy = [](const Tensor& x) { return clone(x).detach(); };
      Result want = run(copy(q), copy(k), copy(v), copy(dy), {.causal = true});
      expect_near(run(q.detach(), k.detach(), v.detach(), dy, {.causal = true}), want,
                  16 * roundoff(t));
      auto across = [&](const Tensor& x) {  // d is not the innermost dimension
        return transpose(clone(transpose(x, 2, 3)), 2, 3).detach();
      };
      expect_near(run(across(q), across(k), across(v), dy, {.causal = true}), want,
                  16 * roundoff(t));
      auto constant = [&](const Tensor& x) {  // one row for all positions: stride 0
        return expand(slice(x, 2, 2, 3), x.shape()).detach();
      };
      expect_near(run(constant(q), constant(k), constant(v), dy),
                  run(copy(constant(q)), copy(constant(k)), copy(constant(v)), dy),
                  16 * roundoff(t));
    }
}

// ---- masks

TEST(Attention, S2_MaskedQueryChangesNothingElse) {
  for (Device device : test_devices())
    for (DType t : {DType::f64, DType::f32, DType::bf16}) {
      Inputs in({1, 2, 3, 4}, {1, 2, 5, 4}, t, device);
      Result all = in.run({.mask = tensor({1, 0, 1}, {1, 1, 3, 1}, DType::u8, device)});
      auto without = [&](const Tensor& x) {
        return cat({slice(x, 2, 0, 1), slice(x, 2, 2, 3)}, 2).detach();
      };
      Result some = run(without(in.q), in.k.detach(), in.v.detach(), without(in.dy));
      for (size_t h = 0; h < 2; ++h) {
        EXPECT_EQ(part(all.o, 12 * h + 4, 12 * h + 8), Values(4, 0.0));
        EXPECT_EQ(part(all.dq, 12 * h + 4, 12 * h + 8), Values(4, 0.0));
        for (size_t row : {0, 1}) {
          size_t from = 12 * h + 8 * row, to = 8 * h + 4 * row;
          expect_near(part(all.o, from, from + 4), part(some.o, to, to + 4), 4 * roundoff(t));
          expect_near(part(all.dq, from, from + 4), part(some.dq, to, to + 4), 4 * roundoff(t));
        }
      }
      expect_near(all.dk, some.dk, 4 * roundoff(t));
      expect_near(all.dv, some.dv, 4 * roundoff(t));
    }
}

/// The additive form of a boolean mask: 0 where it shows, −∞ where it hides.
Tensor additive(const Tensor& mask, DType t) {
  auto number = [&](double v) { return full({}, v, t, mask.device()); };
  return where(mask, expand(number(0), mask.shape()), number(-kInf));
}

TEST(Attention, S3_BooleanAndAdditiveMaskAreTheSame) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes)
      for (bool causal : {false, true}) {
        Inputs in({2, 2, 3, 4}, {2, 1, 5, 4}, t, device);
        Values seen;
        for (int i = 0; i < 2 * 3 * 5; ++i)
          seen.push_back(i / 5 == 1 ? 0 : (i * 7 % 5) < 3);  // an empty row
        Tensor mask = tensor(seen, {2, 1, 3, 5}, DType::u8, device);
        Result r = in.run({.causal = causal, .mask = mask});
        expect_same(r, in.run({.causal = causal, .mask = additive(mask, t)}));
        EXPECT_EQ(part(r.o, 4, 8), Values(4, 0.0));
        EXPECT_EQ(part(r.dq, 4, 8), Values(4, 0.0));
        EXPECT_TRUE(all_finite(r));
        if (!causal) {  // against the formula, whose empty rows are 0 by softmax's own rule
          double most = t == DType::f64 ? 1e-12 : 64 * roundoff(t);
          expect_near(r, in.formula({.mask = mask}), most);
        }
      }
}

TEST(Attention, S4_FinitePenaltyIsNoMask) {
  for (Device device : test_devices())
    for (double penalty : {-1e4, -1e9}) {
      Inputs in({1, 1, 2, 4}, {1, 1, 3, 4}, DType::f32, device);
      Tensor ones_v = ones({1, 1, 3, 4}, DType::f32, device);
      Tensor mask = full({1, 1, 1, 3}, penalty, DType::f32, device);
      expect_near(attention(in.q, in.k, ones_v, {.mask = mask}).to_vector(), Values(8, 1.0), 1e-6);
    }
}

TEST(Attention, S6_NothingHidesAVisibleNaN) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes)
      for (double bad : {double(NAN), kInf}) {
        Inputs in({1, 1, 3, 2}, {1, 1, 3, 2}, t, device);
        in.q = clone(in.q), in.q.set(2, bad), in.q.set(3, 0);  // query 1
        in.k = add(mul(in.k, 0), 1);                           // every score of query 1 is `bad`
        Values o = attention(in.q, in.k, in.v).to_vector();
        for (size_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(o[i]), i / 2 == 1) << i;
      }
}

TEST(Attention, S9_BatchesOfOneAndTwoAgree) {
  for (Device device : test_devices())
    for (DType t : {DType::f64, DType::f32, DType::bf16}) {
      Inputs in({2, 2, 70, 8}, {2, 2, 70, 8}, t, device);
      Tensor mask = tensor({1, 0}, {2, 1, 1, 1}, DType::u8, device);
      Values both = attention(in.q, in.k, in.v, {.mask = mask}).to_vector();
      auto first = [](const Tensor& x) { return slice(x, 0, 0, 1); };
      Values one = attention(first(in.q), first(in.k), first(in.v)).to_vector();
      Generator unused(1);
      Values trained =
          attention(first(in.q), first(in.k), first(in.v), {.dropout = 0, .generator = &unused})
              .to_vector();
      expect_near(part(both, 0, one.size()), one, 8 * roundoff(t));
      EXPECT_EQ(trained, one);
      EXPECT_EQ(part(both, one.size(), both.size()), Values(one.size(), 0.0));
      EXPECT_EQ(unused.state(), Generator(1).state());
    }
}

TEST(Attention, S11_BooleanMaskSelects) {
  for (Device device : test_devices())
    for (double bad : {double(NAN), kInf}) {
      Inputs in({1, 1, 2, 2}, {1, 1, 3, 2}, DType::f32, device);
      Tensor mask = tensor({1, 0, 1, 1, 1, 1}, {1, 1, 2, 3}, DType::u8,
                           device);  // query 0 does not see key 1
      Values clean = attention(in.q, in.k, in.v, {.mask = mask}).to_vector();
      in.k = clone(in.k), in.k.set(2, bad);
      Values o = attention(in.q, in.k, in.v, {.mask = mask}).to_vector();
      EXPECT_EQ(part(o, 0, 2), part(clean, 0, 2));
    }
}

TEST(Attention, S12_PaddingMayHoldAnything) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes)
      for (double bad : {double(NAN), kInf})
        for (bool everywhere :
             {false, true}) {  // by padding alone, or by padding and for each query
          Inputs in({2, 2, 3, 2}, {2, 1, 4, 2}, t, device);
          Values seen{1, 1, 0, 1, 1, 1, 1, 0};
          Tensor mask = tensor(seen, {2, 1, 1, 4}, DType::u8, device);
          if (everywhere) mask = clone(expand(mask, {2, 2, 3, 4}));
          Result clean = in.run({.mask = mask});
          for (Tensor* x : {&in.k, &in.v}) {
            *x = clone(*x);
            for (int64_t i : {4, 5, 14, 15}) x->set(i, bad);  // keys 2 of sample 0, 3 of sample 1
          }
          Result r = in.run({.mask = mask});
          expect_same(r, clean);
          for (size_t i : {4, 5, 14, 15}) {
            EXPECT_EQ(r.dk[i], 0);
            EXPECT_EQ(r.dv[i], 0);
          }
        }
}

TEST(Attention, S12_ValuesBehindAnAdditiveMaskMayHoldAnything) {
  for (Device device : test_devices()) {
    Inputs in({1, 1, 2, 2}, {1, 1, 3, 2}, DType::f32, device);
    Tensor mask = tensor({0, -kInf, 0.5}, {1, 1, 1, 3}, DType::f32, device);
    Result clean = in.run({.mask = mask});
    in.v = clone(in.v), in.v.set(2, NAN), in.v.set(3, kInf);
    expect_same(in.run({.mask = mask}), clean);
  }
}

TEST(Attention, S13_AdditiveMaskAdds) {
  for (Device device : test_devices()) {
    Inputs in({1, 1, 2, 2}, {1, 1, 3, 2}, DType::f32, device);
    in.k = clone(in.k), in.k.set(2, NAN);
    Tensor mask = tensor({0, -kInf, 0, 0, 0, 0}, {1, 1, 2, 3}, DType::f32, device);
    for (double v : attention(in.q, in.k, in.v, {.mask = mask}).to_vector())
      EXPECT_TRUE(std::isnan(v));
  }
}

TEST(Attention, S14_OneKey) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes)
      for (bool causal : {false, true}) {
        Inputs in({2, 3, 1, 5}, {2, 3, 1, 5}, t, device);
        Result r = in.run({.causal = causal});
        EXPECT_EQ(r.o, in.v.to_vector());
        EXPECT_EQ(r.dv, in.dy.to_vector());
        EXPECT_EQ(r.dq, Values(30, 0.0));
        EXPECT_EQ(r.dk, Values(30, 0.0));
      }
}

TEST(Attention, S15_CausalMaskIsAlignedAtTheEnd) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Inputs in({1, 1, 4, 2}, {1, 1, 2, 2}, t, device);
      Result r = in.run({.causal = true});
      Values v = in.v.to_vector(), both = attention(slice(in.q, 2, 3, 4), in.k, in.v).to_vector();
      EXPECT_EQ(part(r.o, 0, 4), Values(4, 0.0));
      EXPECT_EQ(part(r.o, 4, 6), part(v, 0, 2));
      expect_near(part(r.o, 6, 8), both, 4 * roundoff(t));
      EXPECT_EQ(part(r.dq, 0, 6), Values(6, 0.0));  // one key has no choice to change
      Tensor mask = tensor({0, 0, 0, 0, 1, 0, 1, 1}, {1, 1, 4, 2}, DType::u8, device);
      expect_near(r, in.run({.mask = mask}), 4 * roundoff(t));
    }
}

TEST(Attention, S16_DecodingTokenByTokenEqualsOnePass) {
  const int64_t T = 9;
  for (Device device : test_devices())
    for (DType t : {DType::f64, DType::f32, DType::bf16}) {
      Inputs in({2, 2, T, 4}, {2, 1, T, 4}, t, device);
      Tensor whole = attention(in.q, in.k, in.v, {.causal = true});
      for (int64_t i = 0; i < T; ++i) {
        auto cached = [&](const Tensor& x) { return slice(x, 2, 0, i + 1); };
        Tensor one =
            attention(slice(in.q, 2, i, i + 1), cached(in.k), cached(in.v), {.causal = true});
        expect_near(one.to_vector(), slice(whole, 2, i, i + 1).to_vector(), 8 * roundoff(t));
      }
    }
}

TEST(Attention, S17_LargeScores) {
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16}) {
      auto matrix = [&](Values x) { return tensor(x, {1, 1, 2, 2}, t, device); };
      // Scores (10000, 0) and (5000, 10000): the leader takes all.
      Result r = run(matrix({100, 0, 50, 100}), matrix({100, 0, 0, 100}), matrix({1, 2, 3, 4}),
                     matrix({0.5, -1, 2, 0.25}), {.scale = 1});
      EXPECT_EQ(r.o, (Values{1, 2, 3, 4}));
      EXPECT_EQ(r.dv, (Values{0.5, -1, 2, 0.25}));
      EXPECT_EQ(r.dq, Values(4, 0.0));
      EXPECT_EQ(r.dk, Values(4, 0.0));
      // Two equal scores of 1e4 share. ∂O/∂score = ±¼ (v₀ − v₁).
      Result tie = run(matrix({100, 100, 100, 100}), matrix({50, 50, 50, 50}), matrix({1, 2, 3, 4}),
                       matrix({0.5, -1, 2, 0.25}), {.scale = 1});
      EXPECT_EQ(tie.o, (Values{2, 3, 2, 3}));
      EXPECT_EQ(tie.dq, Values(4, 0.0));  // the keys are the same
      EXPECT_EQ(tie.dk, (Values{-87.5, -87.5, 87.5, 87.5}));
    }
}

TEST(Attention, S19_GradientsAtPaddingReplaceWhatWasThere) {
  for (Device device : test_devices()) {
    Inputs in({1, 1, 2, 2}, {1, 1, 3, 2}, DType::f32, device);
    Tensor mask = tensor({1, 1, 0}, {1, 1, 1, 3}, DType::u8, device);
    Tensor k = clone(in.k).detach().requires_grad_(), v = clone(in.v).detach().requires_grad_();
    for (const Tensor& x : {k, v}) x.set_main_grad(full(x.shape(), NAN, DType::f32, device));
    attention(in.q, k, v, {.mask = mask}).backward(in.dy);
    for (const Tensor& x : {k, v}) {
      Values g = x.grad().to_vector();
      EXPECT_EQ(part(g, 4, 6), (Values{0, 0}));
      for (double value : g) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST(Attention, S20_EmptyOperands) {
  for (Device device : test_devices()) {
    auto zero = [&](Shape s) { return zeros(s, DType::f32, device); };
    Result no_keys =
        run(zero({1, 2, 3, 4}), zero({1, 2, 0, 4}), zero({1, 2, 0, 4}), zero({1, 2, 3, 4}));
    EXPECT_EQ(no_keys.o, Values(24, 0.0));
    EXPECT_EQ(no_keys.dq, Values(24, 0.0));
    Result no_queries =
        run(zero({1, 2, 0, 4}), zero({1, 2, 3, 4}), zero({1, 2, 3, 4}), zero({1, 2, 0, 4}));
    EXPECT_TRUE(no_queries.o.empty());
    EXPECT_EQ(no_queries.dk, Values(24, 0.0));
    EXPECT_EQ(no_queries.dv, Values(24, 0.0));
  }
}

TEST(Attention, S21_WeightsInSixteenBits) {
  // With v = one-hot rows the output is the weights themselves. Scores up to ±20 are exact in f32,
  // and would be off by 1/16 in bf16.
  const int64_t T = 8;
  for (Device device : test_devices())
    for (DType t : {DType::bf16, DType::f16}) {
      Inputs in({1, 2, T, T}, {1, 2, T, T}, t, device);
      in.q = mul(in.q, 4);
      in.v = expand(cast(one_hot(arange(T, DType::i64, device), T), t), {1, 2, T, T});
      Values got = attention(in.q, in.k, in.v).to_vector(), want = in.formula().o;
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LE(std::abs(got[i] - want[i]), std::max(2 * roundoff(t) * want[i], 0x1p-24)) << i;
    }
}

// ---- dropout

TEST(Attention, DropoutDropsWeightsAndKeepsTheMean) {
  const int64_t T = 64, d = 64;
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16}) {
      Inputs in({2, 2, T, d}, {2, 2, T, d}, t, device);
      in.q = mul(in.q, 0);  // all weights 1/T
      in.v = expand(cast(one_hot(arange(T, DType::i64, device), T), t),
                    {2, 2, T, d});  // o = the weights
      Generator g(3), same(3);
      Values o = attention(in.q, in.k, in.v, {.dropout = 0.25, .generator = &g}).to_vector();
      EXPECT_EQ(o, attention(in.q, in.k, in.v, {.dropout = 0.25, .generator = &same}).to_vector());
      Philox stream = Generator(3).next();
      double kept = 0;
      for (size_t i = 0; i < o.size(); ++i) {
        bool keep = stream.keep(i, drop_threshold(0.25));
        EXPECT_NEAR(o[i], keep ? 1 / (0.75 * T) : 0, 2 * roundoff(t));
        kept += keep;
      }
      EXPECT_NEAR(kept / double(o.size()), 0.75, 0.02);  // 5 deviations of a binomial of 16384
      Values none = attention(in.q, in.k, in.v, {.dropout = 1, .generator = &g}).to_vector();
      EXPECT_EQ(none, Values(none.size(), 0.0));
    }
}

TEST(Attention, WrongUseSaysWhatWasExpected) {
  Tensor q = zeros({2, 4, 3, 8}), k = zeros({2, 2, 5, 8});
  auto fails = [&](const Tensor& a, const Tensor& b, const Tensor& c, AttentionOptions o,
                   const char* words) {
    try {
      attention(a, b, c, o);
      ADD_FAILURE() << "no error: " << words;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  fails(q, zeros({2, 3, 5, 8}), zeros({2, 3, 5, 8}), {}, "a multiple of Hkv");
  fails(q, zeros({2, 2, 5, 4}), zeros({2, 2, 5, 4}), {}, "(2, 2, 5, 4)");
  fails(q, k, zeros({2, 2, 4, 8}), {}, "(2, 2, 4, 8)");
  fails(q, k, zeros({2, 2, 5, 8}, DType::f64), {}, "one type");
  fails(q, k, k, {.mask = zeros({2, 1, 3, 5}, DType::f64)}, "mask");
  fails(q, k, k, {.mask = zeros({3, 5}, DType::u8)}, "four dimensions");
  fails(q, k, k, {.mask = zeros({2, 1, 3, 4}, DType::u8)}, "(2, 1, 3, 4)");
  fails(q, k, k, {.mask = zeros({1, 1, 1, 5}).requires_grad_()}, "no gradient");
  fails(q, k, k, {.dropout = 0.1}, "generator");
  fails(q, k, k, {.dropout = 1.1}, "1.1");
}

}  // namespace
}  // namespace gradus
