#pragma once
// Tensor parallelism [Shoeybi et al. 2019]: the matrices of a model are cut over the ranks of a group.
//
//   column   Y_r = X W_rᵀ + b_r            row   Y = Σ_r X_r W_rᵀ + b
//            X ──copy──▶ X W₀ᵀ ─▶ Y₀             X₀ ─▶ X₀ W₀ᵀ ─┐
//                   └──▶ X W₁ᵀ ─▶ Y₁             X₁ ─▶ X₁ W₁ᵀ ─┴─ Σ ─▶ + b ─▶ Y
//            W = ⎡ W₀ ⎤ rank 0                   W = [ W₀ │ W₁ ]
//                ⎣ W₁ ⎦ rank 1
//
// A column layer makes each rank's part of a wide vector, a row layer takes it back, and what stands
// between (attention by heads, activations) works on the parts: a pair costs one sum over the ranks forward
// and one backward.
//
// Sequence parallelism [Korthikanti et al. 2022] cuts what is outside the pairs, too: norms, dropout and
// residuals work on B·T/n of the B·T tokens, seen as rows, rank r on the r-th part of them. The sum that
// leaves a row layer becomes a reduce-scatter, and a gather enters the next column layer: the same traffic,
// but 1/n of the memory. Parameters out there are whole on each rank, but see its tokens only: their
// gradients are partial, and are summed over the group before they are used.
//
// In a group of one each layer is the dense one.
#include "nn/init.h"
#include "parallel/communicator.h"

namespace gradus::parallel {

/// The group that a model is cut over, and whether its tokens are cut, too.
struct TensorParallel {
  Communicator group{};
  bool sequence = false;

  int rank() const { return group.rank(); }
  int ranks() const { return group.size(); }
  bool is_cut() const { return ranks() > 1; }
  bool splits_tokens() const { return sequence && is_cut(); }

  /// n / ranks. Error, with `what` of a model this is, where it does not divide.
  int64_t part(int64_t n, const char* what) const;
  /// Error where tokens are cut and so many do not divide by the ranks.
  void check_tokens(int64_t tokens) const;
  /// How parameters are cut: by dimension 0 in `pieces` (Note [pieces] in nn/parameter.h), by dimension 1,
  /// or not at all, which is for those that work on the tokens outside the pairs.
  nn::Shard rows(int pieces = 1) const;
  nn::Shard columns() const;
  nn::Shard whole() const;
};

/// x (…, in), the same on all ranks or under sequence parallelism its rows of (B·T, in); weight (out/n, in)
/// and bias (out/n) or {} → (…, out/n), or (B·T, out/n). The weight may be another layer's (a tied head).
Tensor column_linear(const TensorParallel& tp, const Tensor& x, const Tensor& weight,
                     const Tensor& bias = {});
/// x (…, in/n), weight (out, in/n), bias (out) or {} → (…, out), the same on all ranks or, from x (B·T, in/n),
/// this rank's rows (B·T/n, out). The bias is added once, after the sum.
Tensor row_linear(const TensorParallel& tp, const Tensor& x, const Tensor& weight,
                  const Tensor& bias = {});
/// gelu(x W₁ᵀ + b₁) W₂ᵀ of a column and a row layer, gelu in its tanh form: as gelu_mlp (ops/gelu_mlp.h).
/// Without the bias of the row layer, which the caller adds once.
Tensor column_gelu_row(const TensorParallel& tp, const Tensor& x, const Tensor& w1,
                       const Tensor& b1, const Tensor& w2);

struct ColumnLinear final : nn::Module {
  struct Options {
    bool bias = true;
    int pieces = 1;              // of the rows that are cut one by one: 2 for SwiGLU's gate and up
    bool gather_output = false;  // every rank gets all of y
  };
  TensorParallel tp;
  bool gather_output;
  nn::Parameter weight;  // (out / n, in)
  nn::Parameter bias;    // (out / n), or absent; starts at 0

  ColumnLinear(int64_t in, int64_t out, const TensorParallel& tp, Options options);
  ColumnLinear(int64_t in, int64_t out, const TensorParallel& tp = {})
      : ColumnLinear(in, out, tp, Options{}) {}
  Tensor operator()(const Tensor& x) const;
  void fields(nn::Fields& f) override { f("weight", weight)("bias", bias); }
};

struct RowLinear final : nn::Module {
  struct Options {
    bool bias = true;
    bool input_is_parallel = true;  // else x (…, in) is the same on all ranks, and is cut first
  };
  TensorParallel tp;
  bool input_is_parallel;
  nn::Parameter weight;  // (out, in / n)
  nn::Parameter bias;    // (out), or absent; starts at 0

  RowLinear(int64_t in, int64_t out, const TensorParallel& tp, Options options);
  RowLinear(int64_t in, int64_t out, const TensorParallel& tp = {})
      : RowLinear(in, out, tp, Options{}) {}
  Tensor operator()(const Tensor& x) const { return apply_with(bias, x); }
  /// The same less the bias, for a caller that adds it on the way.
  Tensor without_bias(const Tensor& x) const { return apply_with({}, x); }
  void fields(nn::Fields& f) override { f("weight", weight)("bias", bias); }

 private:
  Tensor apply_with(const Tensor& bias, const Tensor& x) const;
};

}  // namespace gradus::parallel
