#pragma once
// Matrix products of tensors, unrecorded: the kernel that matmul and linear call on both devices.
#include "autograd/node.h"
#include "ops/gemm.h"

namespace gradus {

/// xᵀ of the last two dimensions, read without moving it.
Tensor t(const Tensor& x);

/// A B for (…, m, k) and (…, k, n): (…, m, n). Leading dimensions broadcast. Operands whose rows or
/// columns are contiguous are read where they lie; others are copied first.
Tensor gemm(const Tensor& a, const Tensor& b);

/// C ← A B + β C. C may be wider than A and B (f32 for 16-bit operands); its rows are contiguous.
/// With β = 0 C is not read. An epilogue needs matrices on a GPU.
void gemm_into(const Tensor& c, const Tensor& a, const Tensor& b, double beta,
               const Epilogue& epilogue = {});

/// C ← A B + bias for matrices, the bias (n) added to every row.
void gemm_bias_into(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);

/// (…, C) as (rows, C), without history; a copy only where x is not contiguous.
Tensor rows_of(const Tensor& x);

// The gradients of y = x Wᵀ + b that sum over rows, for dY (rows, out) and X (rows, in). Where the
// parameter has a main gradient of the type that sums are formed in, they are added to it, without a
// tensor between, and the result is undefined.
Tensor weight_gradient(const Tensor& dY, const Tensor& X, Need need);  // dW = dYᵀ X
Tensor bias_gradient(const Tensor& dY, Need need);                     // db = Σ_rows dY

}  // namespace gradus
