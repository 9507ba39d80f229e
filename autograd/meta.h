#pragma once
// What only some tensors have: a gradient, hooks, a name.
#include "autograd/node.h"

namespace gradus {

/// The end of the graph at a leaf: adds what arrives to the leaf's gradient, then runs its hooks.
/// A leaf owns one, shared by all its uses; the node knows the leaf by a plain pointer, which the
/// leaf clears when it goes (so there is no cycle, and a gradient for nobody is dropped).
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(TensorImpl* leaf);
  std::string_view name() const override { return "accumulate_grad"; }
  Tensors backward(const Tensors& dy) override;
  MainGrad* main_grad() override;
  bool runs_on_nothing() const override;
  TensorImpl* leaf() const override { return leaf_; }
  void forget_leaf() { leaf_ = nullptr; }

 private:
  TensorImpl* leaf_;
};

struct AutogradMeta {
  std::shared_ptr<Tensor> grad;
  MainGrad main_grad;
  Ref<AccumulateGrad> accumulator;
  std::vector<LeafHook> leaf_hooks;
  std::string name;
};

}  // namespace gradus
