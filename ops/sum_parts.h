#pragma once
// Gradients of what all rows of a matrix share, γ, β and a bias: sums over its rows. A kernel leaves
// sums of some of the rows each, and these parts are added in a fixed order: the same bits on each run.
//
// Note [sums that wait]
// The parts of one γ are read within a microsecond, and a kernel takes three to come and go. A block of GPT-2
// has eight such sums, and nobody reads a main gradient before backward has ended: so what is added to main
// gradients waits, and one kernel does all of it.
//
//   backward   ── norm ── attention ── norm ── mlp ── … ── norm ──┬─ Σ ─── optimizer
//                  └ parts   └ parts    └ parts └ parts     └─────┘
//
// Whoever does read one earlier, a hook or data parallelism that sends a bucket of gradients, has the sums
// done first: main gradients that wait are late writes (Note [late writes] in core/storage.h).
#include <vector>

#include "autograd/node.h"

namespace gradus {

/// Σ_p parts[p, k] for parts (number, K, n) and each k < K, in `dtype`. Undefined where it is not needed
/// or is added to the parameter's main gradient, at the latest when the running backward ends.
std::vector<Tensor> sum_parts(const Tensor& parts, DType dtype, const std::vector<Need>& needs);

}  // namespace gradus
