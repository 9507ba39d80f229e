// Matrix products.
//
//   C = A B          C_ij = Σ_k A_ik B_kj        dA = dC Bᵀ,   dB = Aᵀ dC
//   Y = X Wᵀ + b     over the flattened rows     dX = dY W,    dW = dYᵀ X,   db = Σ_rows dY
//
// A transposed operand is read where it lies; only its strides differ.
#include "autograd/accumulate.h"
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/gemm_tensor.h"
#include "ops/ops.h"

namespace gradus {
namespace {

struct Matmul {
  static constexpr auto name = "matmul";
  static constexpr bool recordable = true;
  Saved a{}, b{};
  Tensor forward(const Tensor& A, const Tensor& B) {
    a = A, b = B;
    return gemm(A, B);
  }
  Tensors backward(const Tensor& dC, Needs need) {
    return {need[0] ? sum_to(matmul(dC, transpose(*b, -1, -2)), a->shape()) : Tensor{},
            need[1] ? sum_to(matmul(transpose(*a, -1, -2), dC), b->shape()) : Tensor{}};
  }
};

struct Linear {
  static constexpr auto name = "linear";
  Saved x{}, w{};
  bool has_bias = false;

  Tensor forward(const Tensor& X, const Tensor& W, const Tensor& bias) {
    x = X, w = W;
    has_bias = bool(bias);
    Shape shape = X.shape();
    shape[-1] = W.size(0);
    Tensor y = empty(shape, X.dtype(), X.device());
    Tensor rows = rows_of(y);
    has_bias ? gemm_bias_into(rows, rows_of(X), t(W), bias) : gemm_into(rows, rows_of(X), t(W), 0);
    return y;
  }

  Tensors backward(const Tensor& dy, Needs need) {
    Tensor dY = rows_of(dy), dx;
    if (need[0]) {
      dx = empty_like(*x);
      gemm_into(rows_of(dx), dY, *w, 0);
    }
    Tensor dw = need[1] ? weight_gradient(dY, rows_of(*x), need[1]) : Tensor{};
    return {dx, dw, has_bias ? bias_gradient(dY, need[2]) : Tensor{}};
  }

  Tensors backward_recorded(const Tensor& dy, Needs need) {
    Tensor dY = reshape(dy, {-1, dy.size(-1)}), X = reshape(*x, {-1, x->size(-1)});
    return {need[0] ? matmul(dy, *w) : Tensor{},
            need[1] ? matmul(transpose(dY, 0, 1), X) : Tensor{},
            has_bias && need[2] ? sum(dY, {0}) : Tensor{}};
  }
};

void check_product(const char* op, const Tensor& a, const Tensor& b) {
  check(bool(a) && bool(b), op, ": an operand is undefined");
  check(a.dtype() == b.dtype() && a.device() == b.device() && is_floating(a.dtype()),
        "operands must have one floating type and one device in ", op, ": ", a.describe(), " and ",
        b.describe(), "; cast() or to() them first");
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_product("matmul", a, b);
  check(a.rank() >= 2 && b.rank() >= 2, "matmul: matrices have two dimensions or more, got ",
        a.shape(), " and ", b.shape());
  check(a.size(-1) == b.size(-2), "matmul: inner sizes differ, ", a.shape(), " and ", b.shape());
  if (b.rank() == 2 && a.rank() > 2 && a.numel() > 0) {  // one large product instead of a batch
    Shape shape = a.shape();
    shape[-1] = b.size(1);
    return reshape(matmul(reshape(a, {-1, a.size(-1)}), b), shape);
  }
  return apply(Matmul{}, a, b);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_product("linear", x, weight);
  check(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1),
        "linear: input ", x.shape(), " and weight ", weight.shape(), "; needed are (…, in), (out, in)");
  if (bias) {
    check_product("linear", x, bias);
    check(bias.shape() == Shape{weight.size(0)}, "linear: bias ", bias.shape(), " for weight ",
          weight.shape());
  }
  return apply(Linear{}, x, weight, bias);
}

static const Gradcheck checks[] = {
    {"matmul", [](Sampler& s) { return matmul(s.normal({3, 4}), s.normal({4, 2})); }, true},
    {"matmul", [](Sampler& s) { return matmul(s.normal({2, 3, 4}), s.normal({4, 2})); }, true},
    {"matmul", [](Sampler& s) { return matmul(s.normal({2, 1, 3, 4}), s.normal({3, 4, 2})); }, true},
    {"matmul", [](Sampler& s) { return matmul(transpose(s.normal({4, 3}), 0, 1), s.normal({4, 2})); }, true},
    {"matmul", [](Sampler& s) { return matmul(s.normal({3, 0}), s.normal({0, 2})); }},
    {"matmul", [](Sampler& s) { return matmul(s.normal({0, 3}), s.normal({3, 2})); }},
    {"linear", [](Sampler& s) { return linear(s.normal({2, 3, 4}), s.normal({5, 4}), s.normal({5})); }, true},
    {"linear", [](Sampler& s) { return linear(s.normal({3, 4}), s.normal({5, 4})); }, true},
    {"linear", [](Sampler& s) { return linear(s.normal({0, 4}), s.normal({5, 4}), s.normal({5})); }},
};

}  // namespace gradus
