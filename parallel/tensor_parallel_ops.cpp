// The products of tensor parallelism as ops, so that a collective runs while a product does that does not
// need it. On rank r of n, with all tokens in the rows of X:
//
//   column   Y_r = X W_rᵀ + b_r        dX = Σ_k dY_k W_k,   dW_r = dY_rᵀ X,   db_r = Σ_rows dY_r
//   row      Y = Σ_k X_k W_kᵀ          dX_r = dY W_r,       dW_r = dYᵀ X_r
//
//                     tokens whole                  tokens cut (sequence)
//   column, forward   -                             gather X while Y of the own rows is computed
//          backward   sum dX while dW is computed   gather X while dX is computed; then reduce-scatter dX
//                                                   while dW is computed
//   row, forward      sum one half of Y while the other is computed: all of it, or a reduce-scatter
//        backward     -                             gather dY while dX of the own rows is computed
//
// The bias of a row layer is no part of its op: it is added after the sum, once.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/gelu_mlp.h"
#include "ops/gemm_tensor.h"
#include "ops/ops.h"
#include "parallel/row_blocks.h"
#include "parallel/tensor_parallel.h"

namespace gradus::parallel {
namespace {

/// The rows of all tokens, from those that this rank has.
Started begin_gather(const TensorParallel& tp, const Tensor& x) {
  return tp.splits_tokens() ? begin_all_gather(tp.group, rows_of(x)) : Started(rows_of(x));
}
/// The sum over the ranks of y, rows of all tokens: all of it, written over y, or the rows of this rank.
Started begin_sum(const TensorParallel& tp, const Tensor& y) {
  return tp.splits_tokens() ? begin_reduce_scatter(tp.group, y) : begin_all_reduce(tp.group, y);
}
int64_t tokens_of(const TensorParallel& tp, const Tensor& X) {
  return X.size(0) * (tp.splits_tokens() ? tp.ranks() : 1);
}

/// Rows (B·T, C) in the shape of x (…, any), unless its tokens are cut.
Tensor shaped_like(const TensorParallel& tp, const Tensor& rows, const Tensor& x) {
  if (tp.splits_tokens()) return rows;
  Shape shape = x.shape();
  shape[-1] = rows.size(1);
  return reshape(rows, shape);
}

/// All tokens, for a weight's gradient. A column layer saves those of this rank and gathers again: to keep all
/// would be n times the memory, for a gather that hides behind a product anyway.
Started begin_inputs(const TensorParallel& tp, const Tensor& saved, Need wanted) {
  return wanted ? begin_gather(tp, saved) : Started();
}

/// y ← X Wᵀ + bias
void product_into(const Tensor& y, const Tensor& X, const Tensor& W, const Tensor& bias) {
  bias ? gemm_bias_into(y, X, t(W), bias) : gemm_into(y, X, t(W), 0);
}
/// Σ_k X_k W_kᵀ over the ranks: all rows of it, or those of this rank.
Tensor summed_product(const TensorParallel& tp, const Tensor& X, const Tensor& W) {
  return summed_in_blocks(tp, X, W.size(0),
                          [&](const Tensor& y, const Tensor& x) { gemm_into(y, x, t(W), 0); });
}

/// dX of a column layer on its way, in the shape of its input.
struct InputGradient {
  Started sum{};
  Shape shape{};

  InputGradient(const TensorParallel& tp, const Tensor& dY, const Tensor& W, const Shape& shape,
                Need wanted)
      : shape(shape) {
    if (wanted) sum = begin_sum(tp, gemm(dY, W));
  }
  Tensor wait() {
    Tensor dx = sum.wait();
    return dx ? reshape(dx, shape) : dx;
  }
};

struct ColumnLinearOp {
  static constexpr auto name = "column_linear";
  TensorParallel tp{};
  Saved x{}, w{};
  Shape shape{};
  bool has_bias = false;

  Tensor forward(const Tensor& X, const Tensor& W, const Tensor& bias) {
    const Tensor mine = rows_of(X);
    Tensor y = empty({tokens_of(tp, mine), W.size(0)}, X.dtype(), X.device());
    as_they_come(tp, mine, [&](int64_t first, const Tensor& some) {
      product_into(rows(y, first, some.size(0)), some, W, bias);
    });
    x = X, w = W;
    shape = X.shape();
    has_bias = bool(bias);
    return shaped_like(tp, y, X);
  }
  Tensors backward(const Tensor& dy, Needs need) {
    Tensor dY = rows_of(dy);
    Started all = begin_inputs(tp, *x, need[1]);
    InputGradient dx(tp, dY, *w, shape, need[0]);
    Tensor dw = need[1] ? weight_gradient(dY, all.wait(), need[1]) : Tensor{};
    Tensor db = has_bias ? bias_gradient(dY, need[2]) : Tensor{};
    return {dx.wait(), dw, db};
  }
};

struct RowLinearOp {
  static constexpr auto name = "row_linear";
  TensorParallel tp{};
  Saved x{}, w{};

  Tensor forward(const Tensor& X, const Tensor& W) {
    x = X, w = W;
    return shaped_like(tp, summed_product(tp, rows_of(X), W), X);
  }
  Tensors backward(const Tensor& dy, Needs need) {
    Tensor dx = need[0] ? empty_like(*x) : Tensor{}, dX = dx ? rows_of(dx) : dx;
    Tensor dY = as_they_come(tp, rows_of(dy), [&](int64_t first, const Tensor& some) {
      if (dX) gemm_into(rows(dX, first, some.size(0)), some, *w, 0);
    });
    return {dx, need[1] ? weight_gradient(dY, rows_of(*x), need[1]) : Tensor{}};
  }
};

/// Both with a gelu between: H = X W₁ᵀ + b₁, A = gelu(H), Y = Σ_k A_k W₂ₖᵀ. See ops/gelu_mlp.cpp.
struct ColumnGeluRow {
  static constexpr auto name = "column_gelu_row";
  TensorParallel tp{};
  Saved x{}, w1{}, w2{}, h{}, a{};
  Shape shape{};

  Tensor forward(const Tensor& X, const Tensor& W1, const Tensor& B1, const Tensor& W2) {
    const Tensor mine = rows_of(X);
    Tensor H = empty({tokens_of(tp, mine), W1.size(0)}, X.dtype(), X.device()), A = empty_like(H);
    as_they_come(tp, mine, [&](int64_t first, const Tensor& some) {
      const int64_t n = some.size(0);
      gelu_product_into(rows(A, first, n), rows(H, first, n), some, W1, B1);
    });
    x = X, w1 = W1, w2 = W2, h = H, a = A;
    shape = X.shape();
    return shaped_like(tp, summed_product(tp, A, W2), X);
  }
  Tensors backward(const Tensor& dy, Needs need) {
    Started dY_of_all = begin_gather(tp, dy), all = begin_inputs(tp, *x, need[1]);
    Tensor dY = dY_of_all.wait();
    auto [dH, db1] = gelu_backward_product(dY, *w2, *h, need[2]);
    InputGradient dx(tp, dH, *w1, shape, need[0]);
    Tensor dw2 = weight_gradient(dY, *a, need[3]);
    Tensor dw1 = need[1] ? weight_gradient(dH, all.wait(), need[1]) : Tensor{};
    return {dx.wait(), dw1, db1, dw2};
  }
};

void check_weight(const char* op, const Tensor& x, const Tensor& weight) {
  check(bool(x), op, ": the input is undefined");
  check(bool(weight), op, ": there is no weight; one is needed, of this layer or of another");
  check(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1) &&
            x.dtype() == weight.dtype() && x.device() == weight.device(),
        op, ": a weight ", weight.describe(), " for an input ", x.describe(),
        "; needed are (…, in) and (out, in) of one type and device");
}

void check_bias(const char* op, const Tensor& weight, const Tensor& bias) {
  check(!bias || bias.shape() == Shape{weight.size(0)}, op, ": a bias ", bias.describe(),
        " for a weight ", weight.describe(), "; needed is one number for each of its rows");
}

}  // namespace

Tensor column_linear(const TensorParallel& tp, const Tensor& x, const Tensor& weight,
                     const Tensor& bias) {
  check_weight("column_linear", x, weight);
  check_bias("column_linear", weight, bias);
  if (!tp.is_cut()) return linear(x, weight, bias);
  return apply(ColumnLinearOp{.tp = tp}, x, weight, bias);
}

Tensor row_linear(const TensorParallel& tp, const Tensor& x, const Tensor& weight,
                  const Tensor& bias) {
  check_weight("row_linear", x, weight);
  if (!tp.is_cut()) return linear(x, weight, bias);
  tp.check_tokens(x.numel() / std::max<int64_t>(1, x.size(-1)));  // a row layer cuts them
  Tensor y = apply(RowLinearOp{.tp = tp}, x, weight);
  return bias ? y + bias : y;  // after the sum: each rank has all of it
}

Tensor column_gelu_row(const TensorParallel& tp, const Tensor& x, const Tensor& w1,
                       const Tensor& b1, const Tensor& w2) {
  check_weight("column_gelu_row", x, w1);
  check_bias("column_gelu_row", w1, b1);
  if (!tp.is_cut()) return gelu_mlp(x, w1, b1, w2);
  check(w2 && w2.rank() == 2 && w2.size(1) == w1.size(0), "column_gelu_row: weights ",
        w1.describe(), " and ", w2.describe(), "; needed are (inner, in) and (out, inner)");
  return apply(ColumnGeluRow{.tp = tp}, x, w1, b1, w2);
}

// In a group of one; for larger ones see tests/parallel/tensor_parallel_test.cpp.
static const Gradcheck checks[] = {
    {"column_linear",
     [](Sampler& s) {
       Tensor x = s.normal({2, 3, 4}), w = s.normal({5, 4});
       return apply(ColumnLinearOp{}, x, w, s.normal({5}));
     }},
    {"column_linear",
     [](Sampler& s) {
       Tensor x = s.normal({3, 4});
       return apply(ColumnLinearOp{}, x, s.normal({5, 4}), Tensor{});
     }},
    {"row_linear",
     [](Sampler& s) {
       Tensor x = s.normal({2, 3, 4});
       return apply(RowLinearOp{}, x, s.normal({5, 4}));
     }},
    {"column_gelu_row",
     [](Sampler& s) {
       Tensor x = s.normal({2, 3, 4}), w1 = s.normal({8, 4}) * 0.5, b1 = s.normal({8});
       return apply(ColumnGeluRow{}, x, w1, b1, s.normal({5, 8}) * 0.3);
     }},
};

}  // namespace gradus::parallel
