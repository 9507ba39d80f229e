#pragma once
// The backward sweep; Tensor::backward, grad() and recompute() are made of it.
#include <functional>

#include "autograd/tensor.h"

namespace gradus {

/// Runs backward from `roots` with the gradients `seeds`. Returns the gradients that reach `targets`
/// (undefined where none does). A leaf among the targets keeps its grad() as it is; the other leaves
/// add to theirs if `accumulate`.
Tensors run_backward(const Tensors& roots, Tensors seeds, const Tensors& targets, bool accumulate,
                     BackwardOptions options);

namespace detail {
/// Calls f once the outermost backward that runs in this thread has come to its end, also to a failed one, and
/// whatever another such f throws. Error if none runs.
void at_end_of_backward(std::function<void()> f);
bool is_backward_running();
/// May an op running in this thread's sweep add to main gradients itself (Need::into)?
bool& may_accumulate_in_place();
}  // namespace detail

}  // namespace gradus
