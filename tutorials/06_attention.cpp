// Tutorial 6: softmax and attention by hand
//
// Attention looks up: each query q_i is compared with all keys, the scores become weights by softmax,
// and the answer is the weighted mean of the values.
//
//   S = Q Kᵀ/√d,   P = softmax(S) row by row,   O = P V         Q (Tq, d), K (Tk, d), V (Tk, dv)
//
// Softmax  p_i = e^{s_i} / Σ_j e^{s_j}   has  ∂p_i/∂s_j = p_i (δ_ij − p_j),  so
//
//   ds = p ⊙ (dp − Σ_j p_j dp_j)
//
// and attention is three steps, each undone in turn:
//
//   dV = Pᵀ dO,   dP = dO Vᵀ,   dS = P ⊙ (dP − δ),  δ_i = Σ_j P_ij dP_ij = Σ_c dO_ic O_ic
//   dQ = dS K/√d,   dK = dSᵀ Q/√d
//
// δ by its second form needs no row of P: that is what flash attention rests on.
//
//   make tutorials && build/cpu/tutorials/06_attention
#include <limits>

#include "autograd/node.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;

Tensor matrix(const std::vector<double>& v, const Shape& shape) {
  return tensor(v, shape, DType::f64);
}
Tensor t(const Tensor& x) { return transpose(x, -1, -2); }

void softmax_by_hand() {
  section("Softmax");
  Tensor s = matrix({1, 2, 3}, {3}).requires_grad_(), p = softmax(s);
  say("softmax (1, 2, 3) = ", p);
  expect_near("the weights add up to", sum(p).item(), 1, 1e-15);
  expect_near("only differences count: softmax (1001, 1002, 1003) is the same",
              softmax(matrix({1001, 1002, 1003}, {3})), p, 1e-15);
  Tensor naive = exp(matrix({1001, 1002, 1003}, {3}));
  expect("e¹⁰⁰¹ is infinite: so the largest s is subtracted first", std::isinf(naive.at(0)));

  Tensor dp = matrix({0.3, -0.7, 1.1}, {3}), jacobian = empty({3, 3}, DType::f64);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 3; ++j) jacobian.set(3 * i + j, p.at(i) * ((i == j) - p.at(j)));
  Tensor by_jacobian = reshape(matmul(t(jacobian), reshape(dp, {3, 1})), {3});
  Tensor by_formula = p.detach() * (dp - sum(p.detach() * dp));
  p.backward(dp);
  say("ds = ", s.grad());
  expect_near("ds is the Jacobian's transpose times dp", s.grad(), by_jacobian, 1e-15);
  expect_near("which the formula gives without the Jacobian", s.grad(), by_formula, 1e-15);
}

// ---- Three queries, three keys, d = 2.
struct Example {
  Tensor Q = matrix({1, 0, 0.5, -1, 2, 1}, {3, 2}).requires_grad_();
  Tensor K = matrix({0.2, 1, -1, 0.5, 1, 1}, {3, 2}).requires_grad_();
  Tensor V = matrix({1, 2, 3, -1, 0.5, 0.25}, {3, 2}).requires_grad_();
  Tensor dO = matrix({0.3, -0.7, 1.1, 0.2, -0.4, 0.6}, {3, 2});
};

/// −∞ above the diagonal: query i must not see keys j > i, its future.
Tensor causal_mask(int64_t T) {
  Tensor mask = zeros({T, T}, DType::f64);
  for (int64_t i = 0; i < T; ++i)
    for (int64_t j = i + 1; j < T; ++j)
      mask.set(i * T + j, -std::numeric_limits<double>::infinity());
  return mask;
}
Tensor weights(const Tensor& Q, const Tensor& K) {
  return softmax(matmul(Q, t(K)) / std::sqrt(2.0) + causal_mask(3));
}
/// The op, which wants (batch, heads, T, d).
Tensor attention_op(const Tensor& Q, const Tensor& K, const Tensor& V) {
  auto heads = [](const Tensor& x) { return reshape(x, {1, 1, 3, 2}); };
  return reshape(attention(heads(Q), heads(K), heads(V), {.causal = true}), {3, 2});
}

void attention_forward() {
  section("Attention, each query seeing only what came before");
  Example e;
  Tensor P = weights(e.Q, e.K), O = matmul(P, e.V);
  say("P = ", P);
  say("O = ", O);
  expect_near("the first query sees the first value alone", select(O, 0, 0), select(e.V, 0, 0),
              1e-15);
  Tensor before = attention_op(e.Q, e.K, e.V);
  expect_near("the op computes the same", before, O, 1e-14);
  e.V.detach().set(4, 99);  // the last value, written without record
  Tensor after = attention_op(e.Q, e.K, e.V);
  expect_near("what comes last changes nothing before it", slice(after, 0, 0, 2),
              slice(before, 0, 0, 2), 0);
}

void attention_backward() {
  section("Backward: by hand, by the tape, by the op");
  Example e, tape;
  Tensor dQ, dK, dV;
  {
    NoGrad guard;
    Tensor P = weights(e.Q, e.K), O = matmul(P, e.V);
    dV = matmul(t(P), e.dO);
    Tensor dP = matmul(e.dO, t(e.V));
    Tensor delta = sum(e.dO * O, {-1}, true);
    expect_near("δ: rowsum(dO ⊙ O) is rowsum(dP ⊙ P)", delta, sum(dP * P, {-1}, true), 1e-14);
    Tensor dS = P * (dP - delta);
    expect_near("each row of dS adds up to 0: scores matter by difference", sum(dS, {-1}),
                zeros({3}, DType::f64), 1e-15);
    dQ = matmul(dS, e.K) / std::sqrt(2.0);
    dK = matmul(t(dS), e.Q) / std::sqrt(2.0);
  }
  say("dQ = ", dQ);
  matmul(weights(tape.Q, tape.K), tape.V).backward(tape.dO);
  expect_near("the tape finds dQ", tape.Q.grad(), dQ, 1e-14);
  expect_near("and dK", tape.K.grad(), dK, 1e-14);
  expect_near("and dV", tape.V.grad(), dV, 1e-14);

  attention_op(e.Q, e.K, e.V).backward(e.dO);
  expect_near("the op finds dQ", e.Q.grad(), dQ, 1e-14);
  expect_near("and dK", e.K.grad(), dK, 1e-14);
  expect_near("and dV", e.V.grad(), dV, 1e-14);
  expect_near("dQ of the first query is 0: with one key there is no choice",
              sum(abs(select(dQ, 0, 0))).item(), 0, 1e-15);
}

int main() {
  int result = lesson("Tutorial 6: softmax and attention by hand",
                      {softmax_by_hand, attention_forward, attention_backward});
  question(
      "Why divide by √d? Let the entries of q and k be independent with variance 1: what is the\n"
      "variance of q·k, and what does softmax do to scores that are ten apart?");
  return result;
}
