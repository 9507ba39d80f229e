// Two linear maps with a gelu between them, on the rows x of X:
//
//   H = X W₁ᵀ + b₁,   A = gelu(H),   Y = A W₂ᵀ + b₂
//
//   dA = dY W₂,          dH = dA ⊙ gelu'(H)
//   dX = dH W₁           dW₁ = dHᵀ X,   db₁ = Σ_rows dH
//                        dW₂ = dYᵀ A,   db₂ = Σ_rows dY
//
// As one op, because gelu and gelu' then cost no pass over memory of their own: on a GPU the product that
// makes H writes A beside it, and the product that makes dA multiplies it with gelu'(H) before it is
// stored. A is then computed from H before rounding, and dA is not rounded either. That is done for 16-bit
// types: on Hopper GPUs by products of our own where they fit (ops/gelu_gemm_hopper.cu), which sum db₁ on
// the way, else by cuBLASLt if the inner width is a multiple of 8; elsewhere gelu is a pass.
//
// H and A are saved: four times the width each, but no product has to be computed again.
#include "ops/gelu_mlp.h"
#include "autograd/accumulate.h"
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/activation.h"
#include "ops/gelu_gemm.h"
#include "ops/gemm_tensor.h"
#include "ops/sum_parts.h"

namespace gradus {
namespace {

constexpr GeluKind kKind = GeluKind::tanh;

/// Whether a product on the way to `c` can do the gelu.
bool does_gelu(const Tensor& c, int64_t k) {
  return c.device().is_cuda() && size_of(c.dtype()) == 2 && c.size(-1) % 8 == 0 && k > 0;
}

/// C ← A B + bias, which may be absent.
void product(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  bias ? gemm_bias_into(c, a, b, bias) : gemm_into(c, a, b, 0);
}

}  // namespace

Tensor gelu_product(const Tensor& h, const Tensor& X, const Tensor& w1, const Tensor& b1) {
  if (does_gelu(h, X.size(-1))) {
    Tensor a = empty_like(h);
    gelu_product_into(a, h, X, w1, b1);
    return a;
  }
  product(h, X, t(w1), b1);
  return gelu(h, kKind);
}

void gelu_product_into(const Tensor& a, const Tensor& h, const Tensor& X, const Tensor& w1,
                       const Tensor& b1) {
  if (!does_gelu(h, X.size(-1))) return write_values(a, gelu_product(h, X, w1, b1));
  Tensor bias = b1 ? contiguous(b1) : Tensor{};
  if (gelu_gemm_forward_fits(X, w1)) return gelu_gemm_forward(h, a, X, w1, bias);
  gemm_into(
      a, X, t(w1), 0,
      {.bias = bias ? bias.raw() : nullptr, .gelu = Epilogue::Gelu::forward, .pre_gelu = h.raw()});
}

GeluGradients gelu_backward_product(const Tensor& dY, const Tensor& w2, const Tensor& h,
                                    Need need_db1) {
  if (!does_gelu(h, dY.size(-1))) {
    Tensor dH = gelu_backward(gemm(dY, w2), h, kKind);
    return {dH, bias_gradient(dH, need_db1)};
  }
  Tensor dH = empty_like(h);
  if (gelu_gemm_backward_fits(dY, w2)) {
    Tensor parts = gelu_gemm_backward(dH, dY, w2, h, bool(need_db1));
    return {dH, parts ? sum_parts(parts, h.dtype(), {need_db1})[0] : Tensor{}};
  }
  gemm_into(dH, dY, w2, 0, {.gelu = Epilogue::Gelu::backward, .pre_gelu = h.raw()});
  return {dH, bias_gradient(dH, need_db1)};
}

namespace {

struct GeluMlp {
  static constexpr auto name = "gelu_mlp";
  Saved x{}, w1{}, b1{}, w2{}, h{}, a{};

  Tensor forward(const Tensor& X, const Tensor& W1, const Tensor& B1, const Tensor& W2,
                 const Tensor& B2) {
    x = X, w1 = W1, b1 = B1, w2 = W2;
    Tensor rows = rows_of(X), H = empty({rows.size(0), W1.size(0)}, X.dtype(), X.device());
    Tensor A = gelu_product(H, rows, W1, B1);
    Shape shape = X.shape();
    shape[-1] = W2.size(0);
    Tensor y = empty(shape, X.dtype(), X.device());
    product(rows_of(y), A, t(W2), B2);
    h = H, a = A;
    return y;
  }

  Tensors backward(const Tensor& dy, Needs need) {
    Tensor dY = rows_of(dy), dx;
    GeluGradients inner;
    if (need[0] || need[1] || need[2]) inner = gelu_backward_product(dY, *w2, *h, need[2]);
    if (need[0]) {
      dx = empty_like(*x);
      gemm_into(rows_of(dx), inner.dH, *w1, 0);
    }
    Tensor dw2 = weight_gradient(dY, *a, need[3]), db2 = bias_gradient(dY, need[4]);
    Tensor dw1 = need[1] ? weight_gradient(inner.dH, rows_of(*x), need[1]) : Tensor{};
    return {dx, dw1, inner.db1, dw2, db2};
  }

  /// H is computed again, with its history.
  Tensors backward_recorded(const Tensor& dy, Needs need) {
    Tensor dY = reshape(dy, {-1, dy.size(-1)}), X = reshape(*x, {-1, x->size(-1)});
    Tensor H = linear(X, *w1, *b1);
    Tensor dH = gelu_backward_recorded(matmul(dY, *w2), H, kKind);
    return {need[0] ? reshape(matmul(dH, *w1), x->shape()) : Tensor{},
            need[1] ? matmul(transpose(dH, 0, 1), X) : Tensor{}, need[2] ? sum(dH, {0}) : Tensor{},
            need[3] ? matmul(transpose(dY, 0, 1), gelu(H, kKind)) : Tensor{},
            need[4] ? sum(dY, {0}) : Tensor{}};
  }
};

void check_parameter(const Tensor& x, const char* what, const Tensor& p, const Shape& shape) {
  check(p.shape() == shape && p.dtype() == x.dtype() && p.device() == x.device(),
        "gelu_mlp: ", what, " is ", p.describe(), ", needed is ", shape,
        " of the type and on the device of the input ", x.describe());
}

}  // namespace

Tensor gelu_mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                const Tensor& b2) {
  check(x && w1 && w2, "gelu_mlp: an operand is undefined");
  check(is_floating(x.dtype()) && x.rank() >= 1 && w1.rank() == 2 && w2.rank() == 2,
        "gelu_mlp: input ", x.describe(), ", weights ", w1.describe(), " and ", w2.describe(),
        "; needed are (…, in), (inner, in) and (out, inner)");
  int64_t inner = w1.size(0), out = w2.size(0);
  check_parameter(x, "w1", w1, {inner, x.size(-1)});
  check_parameter(x, "w2", w2, {out, inner});
  if (b1) check_parameter(x, "b1", b1, {inner});
  if (b2) check_parameter(x, "b2", b2, {out});
  return apply(GeluMlp{}, x, w1, b1, w2, b2);
}

static const Gradcheck checks[] = {
    {"gelu_mlp",
     [](Sampler& s) {
       Tensor x = s.normal({2, 3, 4}), w1 = s.normal({8, 4}) * 0.5, b1 = s.normal({8});
       return gelu_mlp(x, w1, b1, s.normal({5, 8}) * 0.3, s.normal({5}));
     },
     true},
    {"gelu_mlp",
     [](Sampler& s) {
       Tensor x = s.normal({3, 4}), w1 = s.normal({6, 4}) * 0.5;
       return gelu_mlp(x, w1, {}, s.normal({2, 6}) * 0.3);
     },
     true},
    {"gelu_mlp",
     [](Sampler& s) {
       Tensor x = s.normal({3, 8}), w1 = s.normal({16, 8}) * 0.3, b1 = s.normal({16});
       return gelu_mlp(x, w1, b1, s.normal({8, 16}) * 0.2);
     },
     true},
    {"gelu_mlp",
     [](Sampler& s) {
       Tensor x = s.normal({0, 4}), w1 = s.normal({8, 4});
       return gelu_mlp(x, w1, s.normal({8}), s.normal({5, 8}), s.normal({5}));
     }},
};

}  // namespace gradus
