#include "autograd/node.h"

#include "autograd/accumulate.h"
#include "autograd/apply.h"
#include "autograd/meta.h"

namespace gradus {
namespace {

thread_local uint64_t nodes_made = 0;
thread_local int64_t nodes_alive = 0;
thread_local bool grad_mode = true;
thread_local bool anomaly_mode = false;

}  // namespace

Node::Node() : sequence(++nodes_made) { ++nodes_alive; }
Node::~Node() { --nodes_alive; }
int64_t Node::alive() { return nodes_alive; }

void acquire(Node* n) { retain(n); }

// Note [destruction without recursion]
// Destroying a node drops its edges and saved tensors, which may destroy the nodes behind them, and
// so on along a chain of a million. Hence a node that dies while another is being destroyed only
// joins a list; the outermost release() works through it.
void release(Node* n) {
  if (!drop(n)) return;
  thread_local std::vector<Node*> dying;
  thread_local bool draining = false;
  dying.push_back(n);
  if (draining) return;
  draining = true;
  while (!dying.empty()) {
    Node* next = dying.back();
    dying.pop_back();
    delete next;
  }
  draining = false;
}

bool grad_enabled() { return grad_mode; }
GradMode::GradMode(bool enabled) : before_(std::exchange(grad_mode, enabled)) {}
GradMode::~GradMode() { grad_mode = before_; }

AnomalyMode::AnomalyMode() : before_(std::exchange(anomaly_mode, true)) {}
AnomalyMode::~AnomalyMode() { anomaly_mode = before_; }
bool AnomalyMode::enabled() { return anomaly_mode; }

std::set<std::string_view>& op_names() {
  static std::set<std::string_view> names;
  return names;
}

// ---- the leaf's end of the graph

AccumulateGrad::AccumulateGrad(TensorImpl* leaf) : leaf_(leaf) {
  sequence = UINT64_MAX;  // at once: it frees the gradient that arrived
  outputs.push_back({leaf->shape, leaf->dtype, leaf->storage->device()});
}

MainGrad* AccumulateGrad::main_grad() {
  bool usable = leaf_ && leaf_->meta->main_grad.buffer && !hooks;  // hooks must see the gradient
  return usable ? &leaf_->meta->main_grad : nullptr;
}

bool AccumulateGrad::runs_on_nothing() const { return leaf_ && leaf_->meta->main_grad.arrived; }

Tensors AccumulateGrad::backward(const Tensors& dy) {
  if (!leaf_) return {};
  Tensor leaf{Ref<TensorImpl>(leaf_)};
  AutogradMeta& meta = *leaf_->meta;
  if (dy[0] && meta.main_grad.buffer) {
    double beta = meta.main_grad.beta();
    write_values(meta.main_grad.buffer, dy[0], beta);
  } else if (dy[0]) {
    if (!meta.grad) meta.grad = std::make_shared<Tensor>();
    bool ours = grad_enabled() || (dy[0].is_sole_owner() && dy[0].is_contiguous());
    accumulate(*meta.grad, ours ? dy[0] : clone_values(dy[0]));
  }
  meta.main_grad.arrived = false;
  for (size_t i = 0; i < meta.leaf_hooks.size(); ++i) meta.leaf_hooks[i](leaf);
  return {};
}

// ---- for apply

namespace detail {

Node*& current_node() {
  thread_local Node* node = nullptr;
  return node;
}

Tensor record(Node& node, Tensor t) {
  Shape shape = t.shape();
  node.outputs.push_back({shape, t.dtype(), t.device()});
  if (!is_floating(t.dtype())) return t;
  return Tensor::with_edge(std::move(t), {Ref<Node>(&node), int(node.outputs.size()) - 1});
}

void fail_overwritten(const Tensor& t, uint32_t saved_version) {
  Node* node = current_node();
  fail("a tensor that ", node ? node->name() : "an op", " saved for backward was modified in place: ",
       t.describe(), ", version ", saved_version, " when saved, ", t.version(),
       " now; write into a copy, or after backward");
}

void fail_released(std::string_view op) {
  fail("backward through ", op,
       " a second time: its saved tensors are gone; pass {.retain_graph = true} to the first backward");
}

void fail_not_recordable(std::string_view op) {
  fail("create_graph: the backward of ", op, " cannot be differentiated again");
}

void fail_no_backward(std::string_view op) {
  fail("no derivative is defined for ", op,
       ", and an input requires a gradient; use NoGrad or detach()");
}

void check_no_nan(std::string_view what, std::string_view op, const Tensors& results) {
  for (const Tensor& t : results) {
    if (!t || !is_floating(t.dtype())) continue;
    for (double v : t.detach().to_vector())
      check(v == v, "anomaly mode: ", what, " of ", op, " made a NaN in ", t.describe());
  }
}

}  // namespace detail
}  // namespace gradus
