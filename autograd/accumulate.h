#pragma once
// The little arithmetic that the engine needs itself: ops/ stands above it.
#include "autograd/tensor.h"

namespace gradus {

/// into ← into + g. An undefined `into` takes g as it is. Adds in place only when nobody else can see
/// `into`; with grad mode on the sum is recorded.
void accumulate(Tensor& into, Tensor g);

/// to ← β to + from, converted to the type of `to`. Same shape, any strides, one device; β is 0 or 1,
/// and with 0 `to` is not read. Counts as a write to `to`.
void write_values(const Tensor& to, const Tensor& from, double beta = 0);

/// A contiguous copy with its own storage, without history.
Tensor clone_values(const Tensor& x);

/// A contiguous CPU tensor of the same values: x itself if it is one.
Tensor to_host(const Tensor& x);

/// 1 everywhere.
Tensor ones_like(const Tensor& x);

}  // namespace gradus
