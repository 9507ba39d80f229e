#pragma once
// Collectives as ops. A collective is a linear map of what all ranks hold together, so its backward is
// its transpose, which is another collective:
//
//   forward                               backward
//   copy_to          x                    Σ_k dy_k            entering a column layer
//   reduce_from      Σ_k x_k              dy                  leaving a row layer
//   scatter_to       slice r              all-gather          the same on all ranks → split
//   gather_from      all-gather           slice r             split → the same on all ranks
//                                         or reduce-scatter   split → all of it, for different work
//   reduce_scatter   slice r of Σ_k x_k   all-gather          leaving a row layer, split by tokens
//   all_to_all       all-to-all           the same, back
//   broadcast        x_root               Σ_k dy_k at root, 0 elsewhere
//   send, receive    x from A to B        dx from B to A
#include "parallel/communicator.h"

namespace gradus::parallel {

/// What follows a gather decides its backward. If every rank goes on with the same work, each holds the
/// complete gradient: keep a slice. If each does other work (its shard of the weights), each holds a part of
/// it: sum. The wrong one is wrong by a factor of the group's size, and nothing crashes.
enum class Consumer { replicated, split };

// Along `dim`, and `cut`, the parts of the ranks lie side by side; it may be negative. Error where it does
// not divide by the ranks of the group. A group of one returns x.
Tensor copy_to(const Communicator& group, const Tensor& x);
Tensor reduce_from(const Communicator& group, const Tensor& x);
Tensor scatter_to(const Communicator& group, const Tensor& x, int dim);
Tensor gather_from(const Communicator& group, const Tensor& x, int dim, Consumer consumer);
Tensor reduce_scatter(const Communicator& group, const Tensor& x, int dim);
Tensor all_to_all(const Communicator& group, const Tensor& x, int cut, int join);
Tensor broadcast(const Communicator& group, const Tensor& x, int root);
/// x travels on; what is returned is a scalar 0 that carries the graph: add it to the loss, so that
/// backward comes here for dx. Error in a group of one.
Tensor send(const Communicator& group, const Tensor& x, int to, int tag = 0);
/// What rank `from` sends, a tensor of this shape and type; its backward sends dy there.
Tensor receive(const Communicator& group, const Shape& shape, DType dtype, Device device, int from,
               int tag = 0);

}  // namespace gradus::parallel
