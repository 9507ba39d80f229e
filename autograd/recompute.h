#pragma once
// Activation recomputation ("checkpointing"): keep a segment's inputs instead of everything inside it,
// and run the segment again when its gradient is needed. One extra forward buys the memory of all
// activations in between.
#include "autograd/tensor.h"
#include "core/random.h"

namespace gradus {

/// segment(inputs), without saving what happens inside. Gradients are bitwise those of a plain call:
/// `generator`, if given, is set back to where the first run began, so that dropout repeats its masks,
/// and afterwards to where it stood. Parameters that `segment` uses by itself collect their gradients
/// (and run their leaf hooks) when the segment is run again, once for each segment that uses them.
/// The segment must not have other side effects. create_graph through it is an Error.
Tensors recompute(std::function<Tensors(const Tensors&)> segment, const Tensors& inputs,
                  Generator* generator = nullptr);

}  // namespace gradus
