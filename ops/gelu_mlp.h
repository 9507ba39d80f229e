#pragma once
#include "autograd/node.h"
#include "autograd/tensor.h"

namespace gradus {

/// gelu(x W₁ᵀ + b₁) W₂ᵀ + b₂ with gelu in its tanh form; W₁ (inner, in), W₂ (out, inner), x (…, in); the
/// biases may be {}.
Tensor gelu_mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                const Tensor& b2 = {});

// Its products, unrecorded, of rows X (rows, in):
/// h ← X W₁ᵀ + b₁. Returns gelu(h).
Tensor gelu_product(const Tensor& h, const Tensor& X, const Tensor& w1, const Tensor& b1);
void gelu_product_into(const Tensor& a, const Tensor& h, const Tensor& X, const Tensor& w1,
                       const Tensor& b1);
struct GeluGradients {
  Tensor dH{}, db1{};
};
/// dH = dY W₂ ⊙ gelu'(h), and db₁ = Σ_rows dH as bias_gradient() gives it.
GeluGradients gelu_backward_product(const Tensor& dY, const Tensor& w2, const Tensor& h,
                                    Need need_db1);

}  // namespace gradus
