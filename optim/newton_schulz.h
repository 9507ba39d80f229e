#pragma once
// The nearest matrix with orthogonal rows or columns, by matrix products alone.
//
// Let U = P diag(s) Qᵀ be the singular value decomposition. An odd polynomial of the matrix,
//
//   X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X       maps each singular value to   f(s) = a s + b s³ + c s⁵
//
// and leaves P and Q alone. Starting from s/‖s‖ ≤ 1, a few such steps with well-chosen coefficients
// bring every s near 1: the result is about P Qᵀ, the matrix of all directions of U with equal weight.
// (Where X is tall, X Xᵀ is replaced by the smaller XᵀX from the other side; the result is the same.)
#include <string>

#include "autograd/tensor.h"

namespace gradus::optim {

/// Published sets of (a, b, c) for each step, the values of s that they reach standing beside them in
/// newton_schulz.cu.
enum class Polynomials { simple, quintic, polar_express, cans, aol, cubic5, deepseekv4 };

struct NewtonSchulz {
  Polynomials polynomials = Polynomials::quintic;
  int steps = 5;
};

struct Coefficients {
  double a, b, c;
};

/// Of step `i`, from 0. Error where the set has no such step.
Coefficients coefficients_of(const NewtonSchulz& method, int i);
void validate(const NewtonSchulz& method);

Polynomials polynomials_named(const std::string& name);
/// What to beware of in a set; "" mostly.
std::string warning_of(Polynomials set);

/// Σ x², in f64, as a tensor (1) on the device of x.
Tensor squares_of(const Tensor& x);

/// Orthogonalises `u` (rows, columns), f32 or f64, any strides; the products are formed in `products`,
/// which may also be bf16 or f16. Returns a contiguous matrix of that type. Waits for no device. u = 0
/// gives 0; otherwise the scale of u does not matter, however small or large it is.
Tensor orthogonalize(const Tensor& u, const NewtonSchulz& method, DType products);

}  // namespace gradus::optim
