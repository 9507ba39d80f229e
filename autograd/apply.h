#pragma once
// apply(op, inputs...): runs an op and records it. An op is a struct, and the struct is the state of
// its node:
//
//   struct Mul {
//     static constexpr auto name = "mul";
//     static constexpr bool recordable = true;              // backward consists of recorded ops
//     Saved a{}, b{};                                       // what backward needs; attributes too
//     Tensor forward(const Tensor& x, const Tensor& y) { a = x; b = y; return map(Times{}, x, y); }
//     Tensors backward(const Tensor& dz, Needs need) {      // one gradient per input
//       return {need[0] ? mul(dz, *b) : Tensor{}, need[1] ? mul(dz, *a) : Tensor{}};
//     }
//   };
//
// Forms that an op may choose from:
//   forward   takes named Tensors, or one `const Tensors&` list; returns Tensor or Tensors
//   backward  takes `const Tensor& dy` (one output) or `const Tensors& dy`, with Needs or without;
//             returns Tensor (one input) or Tensors. Absent: the op has no derivative.
//   backward_recorded   the same in recorded ops, for second derivatives where backward is a fused
//             kernel. With neither this nor `recordable`, create_graph through the op is an Error.
// An undefined input (an absent bias) is allowed; it gets no edge.
#include <optional>
#include <set>

#include "autograd/engine.h"
#include "autograd/saved.h"
#include "core/scope.h"

namespace gradus {

/// Names of all ops linked into this program: each apply<Op> adds its own before main() runs.
std::set<std::string_view>& op_names();
template <class Op>
inline const bool op_is_named = op_names().insert(Op::name).second;

namespace detail {

inline Tensors as_list(Tensor t) {
  Tensors list;
  list.push_back(std::move(t));
  return list;
}
inline Tensors as_list(Tensors list) { return list; }

// The four forms of backward.
template <class Op>
concept BackwardAllNeeds = requires(Op op, Tensors dy, Needs need) { op.backward(dy, need); };
template <class Op>
concept BackwardOneNeeds = requires(Op op, Tensor dy, Needs need) { op.backward(dy, need); };
template <class Op>
concept BackwardAll = requires(Op op, Tensors dy) { op.backward(dy); };
template <class Op>
concept BackwardOne = requires(Op op, Tensor dy) { op.backward(dy); };
template <class Op>
concept HasBackward =
    BackwardAllNeeds<Op> || BackwardOneNeeds<Op> || BackwardAll<Op> || BackwardOne<Op>;
template <class Op>
concept HasRecordedForm =
    requires(Op op, Tensors dy, Needs need) { op.backward_recorded(dy, need); } ||
    requires(Op op, Tensor dy, Needs need) { op.backward_recorded(dy, need); };
template <class Op>
concept Recordable = requires { requires Op::recordable; };

template <class Op>
Tensors call_backward(Op& op, const Tensors& dy, Needs need) {
  if constexpr (BackwardAllNeeds<Op>) return as_list(op.backward(dy, need));
  else if constexpr (BackwardOneNeeds<Op>) return as_list(op.backward(dy[0], need));
  else if constexpr (BackwardAll<Op>) return as_list(op.backward(dy));
  else return as_list(op.backward(dy[0]));
}
template <class Op>
Tensors call_backward_recorded(Op& op, const Tensors& dy, Needs need) {
  if constexpr (requires { op.backward_recorded(dy, need); })
    return as_list(op.backward_recorded(dy, need));
  else return as_list(op.backward_recorded(dy[0], need));
}

[[noreturn]] void fail_released(std::string_view op);
[[noreturn]] void fail_not_recordable(std::string_view op);
[[noreturn]] void fail_no_backward(std::string_view op);
/// Anomaly mode: Error naming `what` if a result holds a NaN.
void check_no_nan(std::string_view what, std::string_view op, const Tensors& results);

inline bool wants_grad(const Tensor& t) { return t && t.requires_grad(); }
inline bool wants_grad(const Tensors& list) {
  for (const Tensor& t : list)
    if (wants_grad(t)) return true;
  return false;
}
inline void add_edges(Node& node, const Tensor& t) {
  node.next_functions.push_back(t ? t.gradient_edge() : Edge{});
}
inline void add_edges(Node& node, const Tensors& list) {
  for (const Tensor& t : list) add_edges(node, t);
}

/// Gives `t` its history: the next output of `node`. Integer results have none.
Tensor record(Node& node, Tensor t);
inline Tensors record(Node& node, Tensors list) {
  for (Tensor& t : list) t = record(node, std::move(t));
  return list;
}
/// A result that is one of the inputs must not carry that input's history.
inline Tensor without_history(Tensor t) { return t && t.requires_grad() ? t.detach() : t; }
inline Tensors without_history(Tensors list) {
  for (Tensor& t : list) t = without_history(std::move(t));
  return list;
}

/// Makes `node` the one whose forward or backward runs, until the end of the scope.
class CurrentNode {
 public:
  explicit CurrentNode(Node* node) : before_(std::exchange(current_node(), node)) {}
  ~CurrentNode() { current_node() = before_; }

 private:
  Node* before_;
};

}  // namespace detail

/// The node of an op: the op struct, its edges, and the choice of the backward that fits.
template <class Op>
class OpNode final : public Node, public Pooled {
 public:
  explicit OpNode(Op o) : op(std::move(o)) {}

  std::string_view name() const override { return Op::name; }
  void release_saved() override { op.reset(); }
  Tensors backward(const Tensors& dy) override {
    if (!op) detail::fail_released(Op::name);
    Needs need(*this, detail::may_accumulate_in_place() && !grad_enabled());
    if constexpr (detail::HasRecordedForm<Op>) {
      if (grad_enabled()) return detail::call_backward_recorded(*op, dy, need);
    } else if constexpr (!detail::Recordable<Op>) {
      if (grad_enabled()) detail::fail_not_recordable(Op::name);
    }
    return detail::call_backward(*op, dy, need);
  }

  std::optional<Op> op;
};

/// Runs op.forward(inputs...). If grad mode is on and an input requires a gradient, the result is
/// recorded; ops used inside forward are not.
template <class Op, class... Inputs>
auto apply(Op op, const Inputs&... inputs) {
  (void)op_is_named<Op>;
  Scope scope(Op::name, Phase::forward);
  bool recorded = grad_enabled() && (detail::wants_grad(inputs) || ...);
  if constexpr (!detail::HasBackward<Op>) {
    if (recorded) detail::fail_no_backward(Op::name);
  } else if (recorded) {
    auto* node = new OpNode<Op>(std::move(op));
    Ref<Node> owner(node);
    (detail::add_edges(*node, inputs), ...);
    auto y = [&] {
      NoGrad guard;
      detail::CurrentNode current(node);
      return node->op->forward(inputs...);
    }();
    if (AnomalyMode::enabled()) detail::check_no_nan("forward", Op::name, detail::as_list(y));
    return detail::record(*node, std::move(y));
  }
  detail::CurrentNode none(nullptr);
  auto y = detail::without_history(op.forward(inputs...));
  if (AnomalyMode::enabled()) detail::check_no_nan("forward", Op::name, detail::as_list(y));
  return y;
}

}  // namespace gradus
