#pragma once
// The norm of all gradients together, and what follows from it.
//
//   ‖g‖_p = (Σ_i |g_i|^p)^(1/p),   ‖g‖_∞ = max_i |g_i|
//
// Entries may be anything that their type can hold: f32 squares are summed in f64, where they can
// neither overflow nor vanish; otherwise the entries are first divided by a power of two near the
// largest. The functions return what they found in the tensors of this rank, so that sums over ranks
// can be taken before the root.
#include <limits>

#include "autograd/tensor.h"

namespace gradus::optim {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Σ |g|^p = 2^(p · exponent) · sum; for p = ∞, max |g| = sum. Not finite if some g is not.
struct PowerSum {
  double p = 2, sum = 0;
  int exponent = 0;

  double norm() const;
  /// Joins what another set of tensors has (same p).
  PowerSum& operator+=(const PowerSum& other);
};

/// Over all elements of all `tensors`, for p > 0 or p = ∞. The order of summation depends on the
/// shapes alone. Waits for the device.
PowerSum power_sum(const Tensors& tensors, double p = 2);

/// Σ g², summed in f64. May overflow for f64, where power_sum does not.
double sum_of_squares(const Tensor& x);

/// How many elements are exactly 0.
int64_t count_zeros(const Tensors& tensors);

/// The factor that shortens gradients of norm `norm` to `max_norm`; 1 where they are short enough.
///   c = max_norm / (norm + 1e-6)
double clip_factor(double norm, double max_norm);

}  // namespace gradus::optim
