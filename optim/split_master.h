#pragma once
// The f32 master θ of a bf16 parameter p, for 16 bits more. Both have the same sign and exponent bits, and
// p = bf16(θ) is nearly the upper half of θ. As integers,
//
//   bits of θ  =  bits of p, followed by 16 zeros  +  low         −2¹⁵ ≤ low < 2¹⁵
//
// Neighbouring floats have neighbouring bits. So rounding takes the lower 16 bits away, or adds what they
// lack to 2¹⁶, whichever is less: |low| ≤ 2¹⁵. One value is too large for 16 bits: +2¹⁵, half way between
// two bf16, rounded toward 0 because that one is even. There low is 2¹⁵ − 1: once in 2¹⁷ times θ becomes its
// neighbour, as if its last bit had been rounded the other way, and still rounds to p.
//
// All else comes back bit for bit: zeros, denormals, infinities, and numbers that p rounds to infinity. NaN
// comes back as a NaN: its p has a bit set in the upper half of the fraction's 7, and ± 2¹⁵ leaves some.
#include "autograd/tensor.h"

namespace gradus::optim {

GRADUS_HD inline float master_of(bf16 p, int16_t low) {
  return bits_of<float>((uint32_t(p.bits) << 16) + uint32_t(int32_t(low)));
}
/// What theta has beyond p = bf16(theta).
GRADUS_HD inline int16_t low_of(float theta, bf16 p) {
  const auto low = int32_t(bits_of<uint32_t>(theta) - (uint32_t(p.bits) << 16));
  return int16_t(low < 0x7fff ? low : 0x7fff);
}

/// A view of numbers that lie in one tensor, or of f32 masters in two.
struct StateView {
  Tensor values;  // or parameters, bf16
  Tensor low{};   // int16_t, though its type says bf16: there is no tensor of these

  StateView(Tensor values, Tensor low = {}) : values(std::move(values)), low(std::move(low)) {}
  const Shape& shape() const { return values.shape(); }
  DType dtype() const { return low ? DType::f32 : values.dtype(); }
  int64_t numel() const { return values.numel(); }

  /// The numbers: the tensor itself, or masters put together in a new one.
  Tensor read() const;
  /// Overwrites them, with numbers from any device. Writing masters writes the parameters.
  void write(const Tensor& from) const;
};

}  // namespace gradus::optim
