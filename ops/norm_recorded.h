#pragma once
#include "autograd/tensor.h"

namespace gradus {

struct NormGradients {
  Tensor dx, dgamma, dbeta;
};

/// The backward of a norm of x (see ops/norm.h) in recorded ops, for second derivatives.
NormGradients recorded_norm_backward(bool centred, const Tensor& x, const Tensor& gamma,
                                     const Tensor& dy, double epsilon);

}  // namespace gradus
