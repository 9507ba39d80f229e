#pragma once
// Products with a gelu (in its tanh form) on the way to memory, by a kernel of our own for Hopper GPUs.
#include "autograd/tensor.h"

namespace gradus {

/// Whether the two functions below take these operands, and are the faster way.
bool gelu_gemm_forward_fits(const Tensor& X, const Tensor& w1);
bool gelu_gemm_backward_fits(const Tensor& dY, const Tensor& w2);

/// H ← X W₁ᵀ + b₁ and A ← gelu(H);  X (rows, in), W₁ (inner, in), b₁ (inner) or undefined.
void gelu_gemm_forward(const Tensor& h, const Tensor& a, const Tensor& X, const Tensor& w1,
                       const Tensor& b1);

/// dH ← dY W₂ ⊙ gelu'(H);  dY (rows, out), W₂ (out, inner). Returns sums over the rows of dH as parts
/// (number, 1, inner) for sum_parts(), undefined unless they are wanted.
Tensor gelu_gemm_backward(const Tensor& dh, const Tensor& dY, const Tensor& w2, const Tensor& h,
                          bool wants_sums);

}  // namespace gradus
