#pragma once
// Matrix products of tensors, unrecorded: the kernel that matmul and linear call on both devices.
#include "autograd/tensor.h"

namespace gradus {

/// xᵀ of the last two dimensions, read without moving it.
Tensor t(const Tensor& x);

/// A B for (…, m, k) and (…, k, n): (…, m, n). Leading dimensions broadcast. Operands whose rows or
/// columns are contiguous are read where they lie; others are copied first.
Tensor gemm(const Tensor& a, const Tensor& b);

/// C ← A B + β C. C may be wider than A and B (f32 for 16-bit operands); its rows are contiguous.
/// With β = 0 C is not read.
void gemm_into(const Tensor& c, const Tensor& a, const Tensor& b, double beta);

/// C ← A B + bias for matrices, the bias (n) added to every row.
void gemm_bias_into(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace gradus
