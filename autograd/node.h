#pragma once
// The recorded graph.
//
//   forward     x ──┐
//                  mul ──▶ y       y.grad_fn() ─▶ mul ─ next_functions[0] ─▶ AccumulateGrad(x) ─▶ x.grad
//               w ──┘                                └─ next_functions[1] ─▶ AccumulateGrad(w) ─▶ w.grad
//
//   backward    dy arrives in gradient_slots[0] of mul, summed over all uses of y. Once every edge
//               into mul has delivered, mul runs, and its results travel along next_functions.
#include <string_view>

#include "autograd/tensor.h"

namespace gradus {

/// A buffer that a leaf's gradient is summed in. The first contribution after zero_grad overwrites
/// (β = 0), the later ones add (β = 1): the buffer is never filled with zeros.
struct MainGrad {
  Tensor buffer;
  bool written = false;  // holds a gradient, rather than what an earlier step left
  bool arrived = false;  // a contribution came in the backward that is running

  /// The β of "buffer ← β buffer + contribution". Asking is promising to write.
  double beta() {
    arrived = true;
    return std::exchange(written, true) ? 1 : 0;
  }
};

/// What backward knows of one input: is its gradient wanted, and may it be added in place?
struct Need {
  bool wanted = false;
  MainGrad* into = nullptr;  // if set, backward may add to into->buffer and return no gradient
  explicit operator bool() const { return wanted; }
};

/// One recorded operation. backward() maps the gradients of its outputs to those of its inputs; an
/// undefined Tensor means "no gradient", on either side.
class Node : public RefCounted {
 public:
  struct Output {
    Shape shape;
    DType dtype = DType::f32;
    Device device;
  };

  virtual std::string_view name() const = 0;
  /// dy[k] is ∂L/∂(output k); returns ∂L/∂(input i) for each of next_functions.
  virtual Tensors backward(const Tensors& dy) = 0;
  /// Drops what was saved. A backward after that is an Error.
  virtual void release_saved() {}
  /// The buffer that may be added to instead of delivering along an edge to this node, or null.
  virtual MainGrad* main_grad() { return nullptr; }
  /// True when the node has work although no gradient was delivered (see main_grad).
  virtual bool runs_on_nothing() const { return false; }
  /// The leaf that this node accumulates into; null for ops.
  virtual TensorImpl* leaf() const { return nullptr; }

  SmallVector<Edge, 3> next_functions;    // one per input; empty where no gradient flows
  SmallVector<Tensor, 1> gradient_slots;  // one per output, filled during a backward
  SmallVector<Output, 1> outputs;
  uint64_t sequence = 0;                  // nodes made later run earlier
  int64_t saved_bytes = 0;

  // Book-keeping of the running backward: whose count `waiting` is, edges that have not delivered.
  uint64_t task = 0;
  int waiting = 0;

  /// (output, hook) in order of registration; `retained`: where retain_grad keeps a copy.
  std::unique_ptr<std::vector<std::pair<int, Hook>>> hooks;
  std::unique_ptr<std::vector<std::pair<int, std::weak_ptr<Tensor>>>> retained;

  static int64_t alive();  // nodes that this thread made less those that it destroyed

  virtual ~Node();

 protected:
  Node();
};

/// Which inputs want a gradient: `need[1]`, `need[1].into`.
class Needs {
 public:
  Needs(const Node& node, bool may_accumulate) : node_(node), may_accumulate_(may_accumulate) {}
  Need operator[](int i) const {
    Node* target = node_.next_functions[i].node.get();
    if (!target) return {};
    return {true, may_accumulate_ ? target->main_grad() : nullptr};
  }

 private:
  const Node& node_;
  bool may_accumulate_;
};

// ---- modes of this thread

bool grad_enabled();

/// While one lives, this thread records nothing (NoGrad) or records (EnableGrad). They nest, and an
/// exception that leaves the scope restores the mode.
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};
struct EnableGrad : GradMode {
  EnableGrad() : GradMode(true) {}
};

/// While one lives, each op of this thread looks for NaN in what it computes, forward and backward,
/// and the first that made one is named in an Error. Slow: it waits for the device after each op.
class AnomalyMode {
 public:
  AnomalyMode();
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  static bool enabled();

 private:
  bool before_;
};

}  // namespace gradus
