#pragma once
// Note [saved tensors]
//
// What an op keeps for its backward. Saved keeps an input (or a value computed on the way) together
// with its history, so that a second derivative can flow through it. SavedOutput keeps a result of
// the op itself, without history: the history of the result is this very node, and holding it would
// be a cycle that never goes away. When it is read while the backward is recorded, it gets that
// history back.
//
// Both remember the version of the storage: reading one that was overwritten since is an Error.
#include "autograd/node.h"

namespace gradus {

namespace detail {
/// The node whose forward or backward this thread runs now, or null.
Node*& current_node();
[[noreturn]] void fail_overwritten(const Tensor& t, uint32_t saved_version);
}  // namespace detail

class Saved {
 public:
  Saved& operator=(const Tensor& t) {
    tensor_ = t;
    if (!t) return *this;
    version_ = t.version();
    if (Node* node = detail::current_node()) node->saved_bytes += bytes_of(t);
    return *this;
  }
  const Tensor& operator*() const {
    if (tensor_ && tensor_.version() != version_) detail::fail_overwritten(tensor_, version_);
    return tensor_;
  }
  const Tensor* operator->() const { return &**this; }
  explicit operator bool() const { return bool(tensor_); }

 private:
  Tensor tensor_;
  uint32_t version_ = 0;
};

class SavedOutput {
 public:
  SavedOutput& operator=(const Tensor& t) { return save(t, 0); }
  /// `output_nr`: which output of the op this is.
  SavedOutput& save(const Tensor& t, int output_nr) {
    value_ = t.detach();
    output_nr_ = output_nr;
    return *this;
  }
  Tensor operator*() const {
    const Tensor& t = *value_;
    Node* node = detail::current_node();
    return grad_enabled() && node ? Tensor::with_edge(t.detach(), {Ref<Node>(node), output_nr_}) : t;
  }
  explicit operator bool() const { return bool(value_); }

 private:
  Saved value_;
  int output_nr_ = 0;
};

}  // namespace gradus
