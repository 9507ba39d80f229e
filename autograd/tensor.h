#pragma once
// Tensor: a handle to a strided array that knows how it was computed.
//
//   storage   ▭▭▭▭▭▭▭▭▭▭▭▭       the bytes, shared by all views
//   element (i, j) of a view lies at offset + i·strides[0] + j·strides[1]
//
// Copying a Tensor copies the handle. A tensor computed by a recorded op knows the op's node,
// y.grad_fn(), and which of the node's outputs it is, y.output_nr(). A tensor made by the user is a
// leaf; after requires_grad_() its gradient is summed in grad().
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/ref.h"
#include "core/shape.h"
#include "core/small_vector.h"
#include "core/storage.h"

namespace gradus {

class Node;
class Tensor;
struct AutogradMeta;
void acquire(Node* n);
void release(Node* n);

/// Where a gradient goes: slot `output_nr` of `node`, the gradient of that output of it.
struct Edge {
  Ref<Node> node;
  int output_nr = 0;
  explicit operator bool() const { return bool(node); }
};

using Tensors = SmallVector<Tensor, 3>;
using Hook = std::function<Tensor(const Tensor& grad)>;  // an undefined result keeps the gradient
using LeafHook = std::function<void(const Tensor& leaf)>;

/// Words for a tensor; see Tensor::describe.
struct Description {
  const Tensor& tensor;
  operator std::string() const;
  friend std::ostream& operator<<(std::ostream& out, Description d);
};

struct TensorImpl final : public RefCounted, public Pooled {
  Ref<Storage> storage;
  Shape shape;
  Strides strides;
  int64_t offset = 0, numel = 1;
  DType dtype = DType::f32;
  bool contiguous = true;
  bool requires_grad = false;  // of a leaf
  Edge grad_fn;                // of a result
  std::unique_ptr<AutogradMeta> meta;

  TensorImpl();
  ~TensorImpl();
};
inline void acquire(TensorImpl* t) { retain(t); }
inline void release(TensorImpl* t) {
  if (drop(t)) delete t;
}

struct BackwardOptions {
  bool retain_graph = false;  // keep what was saved, so that backward can run again
  bool create_graph = false;  // record the backward itself, for second derivatives (keeps the graph)
};

class Tensor {
 public:
  Tensor() = default;  // undefined: "no tensor", "no gradient"
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return bool(impl_); }
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // ---- shape and place
  const Shape& shape() const { return impl_->shape; }
  const Strides& strides() const { return impl_->strides; }
  int64_t offset() const { return impl_->offset; }
  int rank() const { return impl_->shape.rank(); }
  int64_t size(int dim) const { return impl_->shape[impl_->shape.dim(dim, "size")]; }
  int64_t numel() const { return impl_->numel; }
  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->storage->device(); }
  bool is_contiguous() const { return impl_->contiguous; }

  // ---- data
  /// The first element. Error if T is not the element type.
  template <class T>
  T* data() const {
    check(dtype_of<T> == impl_->dtype, "a tensor of ", impl_->dtype, " was read as ", dtype_of<T>);
    return static_cast<T*>(memory()) + impl_->offset;
  }
  void* raw() const { return static_cast<char*>(memory()) + impl_->offset * size_of(impl_->dtype); }
  /// Work elsewhere still writes to this tensor: join() is called, once, before anybody is given the address of
  /// an element of it, through this or another view. See Note [late writes] in core/storage.h.
  void join_before_use(std::function<void()> join) const;
  /// The value of a tensor of one element. Waits for the device.
  double item() const;
  /// Element `i` in row-major order of the shape: for tests and printing, one at a time.
  double at(int64_t i) const;
  void set(int64_t i, double value) const;
  /// All elements in row-major order.
  std::vector<double> to_vector() const;

  /// Another view of the same storage, without history. `offset` counts elements from the start of
  /// the storage. Error if the view would reach outside it.
  Tensor alias(const Shape& shape, const Strides& strides, int64_t offset) const;
  /// The same values without history: shares the storage, requires no gradient.
  Tensor detach() const;
  /// Counts a write in place. Error if the write would escape the recorded graph: grad mode is on and
  /// this tensor requires a gradient. Each in-place operation calls it first, with its name.
  void will_write(const char* op) const;
  uint32_t version() const { return impl_->storage->version; }

  // ---- gradient
  bool requires_grad() const { return impl_->requires_grad || impl_->grad_fn; }
  /// Makes this leaf collect a gradient. Error on an integer tensor or on a result. (const, as are
  /// all setters here: a handle does not protect what it names.)
  const Tensor& requires_grad_(bool value = true) const;
  bool is_leaf() const { return !impl_->grad_fn; }
  Node* grad_fn() const { return impl_->grad_fn.node.get(); }
  int output_nr() const { return impl_->grad_fn.output_nr; }

  /// The gradient of a leaf (or of a result after retain_grad), undefined until a backward arrives.
  Tensor grad() const;
  void set_grad(Tensor g) const;
  /// Forgets the gradient: grad() is undefined again. A main gradient keeps its memory and is
  /// overwritten by the next contribution, so nothing is filled with zeros.
  void zero_grad() const;
  /// Lets the leaf's gradient be summed in `buffer` (f32 or f64, the leaf's shape), wherever that lies.
  void set_main_grad(Tensor buffer) const;
  /// Keeps the gradient of this result too.
  void retain_grad() const;
  /// Runs `hook` on the gradient of this tensor, once it is complete, before anyone uses it.
  void register_hook(Hook hook) const;
  /// Runs `hook` once a backward, after the last contribution to this leaf's gradient was added.
  void register_leaf_hook(LeafHook hook) const;

  /// Adds dL/dx to every leaf x that this tensor was computed from. `seed` is dL/d(this); it may be
  /// left out for a tensor of one element, where it is 1.
  void backward(Tensor seed = {}, BackwardOptions options = {}) const;

  /// Makes this leaf another place's name: it takes over memory, type and device of `data` (of the
  /// same shape), seen through every handle. What a graph saved of it before is outdated. Its gradient,
  /// and a main gradient, are kept where they still fit: same device, and same type.
  void set_data(const Tensor& data) const;

  /// A name for messages: parameters get theirs from the module.
  void set_name(std::string name) const;
  std::string name() const;
  /// The name if there is one, with shape and type: "blocks.0.w (3, 4) f32". Written when it is
  /// printed, so that passing it to check() costs nothing.
  Description describe() const;

  // ---- for the engine
  TensorImpl* impl() const { return impl_.get(); }
  /// The edge that a node using this tensor gets: to grad_fn, or to the leaf's accumulator.
  Edge gradient_edge() const;
  /// `t` with `edge` as its history: the same handle when nobody else has it, else an alias.
  static Tensor with_edge(Tensor t, Edge edge);
  /// Nobody else holds this tensor or its storage, so that writing into it is seen by nobody.
  bool is_sole_owner() const;

 private:
  void* memory() const {
    if (impl_->storage->has_late_writes()) [[unlikely]]
      join_late_writes();
    return impl_->storage->data();
  }
  void join_late_writes() const;
  AutogradMeta& meta() const;
  Ref<TensorImpl> impl_;
};

/// A tensor with memory that nobody has written yet.
Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
inline Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
inline int64_t bytes_of(const Tensor& t) { return t.numel() * size_of(t.dtype()); }

/// dL/dx for each of `x` (leaves or results), summed nowhere: the leaves' grad() stays as it is.
/// Undefined where y does not depend on x.
Tensors grad(const Tensor& y, const Tensors& x, Tensor seed = {}, BackwardOptions options = {});

/// Prints values, shape and type: [[1, 2], [3, 4]] (2, 2) f32.
std::ostream& operator<<(std::ostream& out, const Tensor& t);

}  // namespace gradus
