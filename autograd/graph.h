#pragma once
// Pictures of a recorded graph.
#include <string>

#include "autograd/tensor.h"

namespace gradus {

/// The graph behind `root` as an indented tree, inputs below their op. A node met again is named by
/// its number only. At most `limit` lines; the rest is counted.
///
///   #1 sum  () f32
///   └─ #2 mul  (3,) f32  saves 24 bytes
///      ├─ accumulate_grad x  (3,) f32
///      └─ #3 exp  (3,) f32  saves 12 bytes
///         └─ accumulate_grad x  (3,) f32
std::string graph_text(const Tensor& root, int limit = 200);

/// The same graph for Graphviz: `dot -Tsvg`. Leaves are boxes; an edge carries the number of the
/// output that it leads to, where there are several.
std::string graph_dot(const Tensor& root);

/// What the graph holds.
struct GraphSize {
  int64_t nodes = 0;        // ops, without the leaves' accumulators
  int64_t saved_bytes = 0;  // inputs and values kept for backward, counted once per op that keeps them
};
GraphSize graph_size(const Tensor& root);

}  // namespace gradus
