// A node runs once every edge into it has delivered; by then what the uses of its outputs contributed
// has been summed in its slots:   dL/dx = Σ over uses u of dL/du · du/dx.   So each node runs once,
// however often its output was used. Edges are counted among the nodes that the roots reach: a branch
// that does not lead to the loss will never deliver and must not be waited for.
//
// Ready nodes run in the reverse order of their making, which is deterministic and lets go of memory
// early. Nothing recurses.
#include "autograd/engine.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "autograd/accumulate.h"
#include "autograd/apply.h"
#include "autograd/keeps_graph.h"
#include "autograd/meta.h"
#include "core/scope.h"

namespace gradus {

bool& detail::may_accumulate_in_place() {
  thread_local bool may = true;
  return may;
}

bool& detail::keeps_graph() {
  thread_local bool keeps = false;
  return keeps;
}

namespace {

constexpr const char* kContext = "\n  in the backward of ";

/// The named leaf that `node` leads to in the fewest steps, else an unnamed one, else "".
std::string nearest_leaf(Node& node) {
  std::vector<Node*> level{&node};
  std::string unnamed;
  for (int depth = 0; depth < 8 && level.size() < 1000; ++depth) {
    std::vector<Node*> next;
    for (Node* n : level) {
      if (n->leaf()) {
        Tensor leaf{Ref<TensorImpl>(n->leaf())};
        if (!leaf.name().empty()) return leaf.describe();
        unnamed = leaf.describe();
      }
      for (const Edge& e : n->next_functions)
        if (e.node) next.push_back(e.node.get());
    }
    level = std::move(next);
  }
  return unnamed;
}

[[noreturn]] void add_context_and_throw(Node& node, const Tensors& dy, const Error& error) {
  if (std::string_view(error.what()).find(kContext) != std::string_view::npos) throw;
  std::ostringstream out;
  out << error.what() << kContext << node.name() << ", given the gradient";
  for (const Tensor& g : dy) out << ' ' << g.describe();
  if (std::string leaf = nearest_leaf(node); !leaf.empty()) out << "; the nearest leaf is " << leaf;
  throw Error(out.str());
}

void check_gradient(const Node& node, const Edge& to, const Tensor& dx, size_t input) {
  const Node::Output& x = to.node->outputs[size_t(to.output_nr)];
  check(dx.shape() == x.shape && dx.dtype() == x.dtype && dx.device() == x.device, "backward of ",
        node.name(), " returned ", dx.describe(), " for input ", input, ", which is ", x.shape, " ",
        x.dtype, " on ", x.device);
}

void run_hooks(Node& node, Tensors& dy) {
  for (size_t i = 0; node.hooks && i < node.hooks->size(); ++i) {
    auto& [output, hook] = (*node.hooks)[i];
    Tensor& g = dy[size_t(output)];
    if (Tensor changed = g ? hook(g) : Tensor()) g = std::move(changed);
  }
  for (size_t i = 0; node.retained && i < node.retained->size(); ++i) {
    auto& [output, keeper] = (*node.retained)[i];
    const Tensor& g = dy[size_t(output)];
    if (auto kept = keeper.lock(); kept && g)
      accumulate(*kept, grad_enabled() ? g : clone_values(g));
  }
}

bool any(const Tensors& list) {
  return std::any_of(list.begin(), list.end(), [](const Tensor& t) { return bool(t); });
}

/// Has `value` as long as it lives.
class Flag {
 public:
  Flag(bool& flag, bool value) : flag_(flag), before_(std::exchange(flag, value)) {}
  Flag(const Flag&) = delete;
  ~Flag() { flag_ = before_; }

 private:
  bool &flag_, before_;
};

/// One backward: its edge counts and its queue. Sweeps nest: recomputation runs one inside another.
class Sweep {
 public:
  Sweep(const Tensors& roots, const Tensors& targets, bool accumulate, BackwardOptions options)
      : options_(options), accumulate_(accumulate), captured_(targets.size()) {
    for (const Tensor& t : targets) targets_.push_back(t.gradient_edge());
    for (const Tensor& t : roots) roots_.push_back(t.gradient_edge());
    for (const Edge& root : roots_) count_edges(root.node.get());
    running().push_back(this);
  }
  Sweep(const Sweep&) = delete;
  ~Sweep() {
    running().pop_back();
    for (OuterCount& c : outer_) {
      c.node->task = c.task;
      c.node->waiting = c.waiting;
      c.node->gradient_slots = std::move(c.slots);
    }
  }

  Tensors run(Tensors seeds) {
    GradMode mode(options_.create_graph);
    Flag in_place(detail::may_accumulate_in_place(), accumulate_);
    Flag keeps(detail::keeps_graph(), options_.retain_graph || options_.create_graph);
    try {
      sweep(std::move(seeds));
    } catch (...) {
      for (const Edge& root : roots_) clear_slots(root.node.get());
      if (running().size() == 1) end_of_failed();
      throw;
    }
    if (running().size() == 1) end();
    return std::move(captured_);
  }

  static void at_end(std::function<void()> f) { left_to_do().push_back(std::move(f)); }
  static bool any_runs() { return !running().empty(); }

 private:
  struct OuterCount {
    Ref<Node> node;
    uint64_t task;
    int waiting;
    SmallVector<Tensor, 1> slots;
  };

  static uint64_t next_id() {
    static std::atomic<uint64_t> ids{0};
    return ++ids;
  }
  static std::vector<Sweep*>& running() {
    thread_local std::vector<Sweep*> sweeps;
    return sweeps;
  }
  static std::vector<std::function<void()>>& left_to_do() {
    thread_local std::vector<std::function<void()>> list;
    return list;
  }
  static void end() {
    std::exception_ptr first;
    for (const auto& f : std::exchange(left_to_do(), {})) {
      try {
        f();
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }
  static void end_of_failed() noexcept {
    try {
      end();
    } catch (...) {  // the first error is the one to tell
    }
  }
  static bool is_running(uint64_t id) {
    const auto& sweeps = running();
    return std::any_of(sweeps.begin(), sweeps.end(), [&](Sweep* s) { return s->id_ == id; });
  }

  /// Marks `node` as counted by this sweep; false if it was already. A leaf may be in the middle of an
  /// outer sweep's count (a weight used inside and outside a recomputed segment): that is put aside.
  bool first_visit(Node* node) {
    if (node->task == id_) return false;
    if (is_running(node->task)) {
      check(node->leaf(), "backward was called inside a backward through the same node, ",
            node->name());
      outer_.push_back(
          {Ref<Node>(node), node->task, node->waiting, std::move(node->gradient_slots)});
      node->gradient_slots.clear();
    }
    node->task = id_;
    node->waiting = 0;
    return true;
  }

  void count_edges(Node* root) {
    std::vector<Node*> stack;
    if (first_visit(root)) stack.push_back(root);
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      for (const Edge& e : node->next_functions) {
        if (!e.node) continue;
        if (first_visit(e.node.get())) stack.push_back(e.node.get());
        ++e.node->waiting;
      }
    }
  }

  void sweep(Tensors seeds) {
    for (size_t i = 0; i < roots_.size(); ++i) deliver(roots_[i], std::move(seeds[i]));
    for (const Edge& root : roots_)
      if (root.node->waiting == 0) push(root.node);
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end(), made_earlier);
      Ref<Node> node = std::move(ready_.back());
      ready_.pop_back();
      run_node(*node);
    }
  }

  static bool made_earlier(const Ref<Node>& a, const Ref<Node>& b) {
    return a->sequence < b->sequence;
  }
  void push(const Ref<Node>& node) {
    ready_.push_back(node);
    std::push_heap(ready_.begin(), ready_.end(), made_earlier);
  }

  void deliver(const Edge& edge, Tensor g) {
    auto& slots = edge.node->gradient_slots;
    if (slots.empty()) slots.resize(edge.node->outputs.size());
    Tensor& slot = slots[size_t(edge.output_nr)];
    if (!slot) {
      slot = std::move(g);
      return;
    }
    Scope scope("sum of gradients", Phase::backward);
    accumulate(slot, std::move(g));
  }

  void run_node(Node& node) {
    Tensors dy(node.outputs.size());
    for (size_t i = 0; i < node.gradient_slots.size(); ++i)
      dy[i] = std::move(node.gradient_slots[i]);
    node.gradient_slots.clear();
    run_hooks(node, dy);
    Tensors dx;
    if (!capture(node, dy) && (any(dy) || node.runs_on_nothing())) dx = call(node, dy);
    for (size_t i = 0; i < node.next_functions.size(); ++i) {
      const Edge& e = node.next_functions[i];
      if (!e.node) continue;
      if (i < dx.size() && dx[i]) {
        check_gradient(node, e, dx[i], i);
        deliver(e, std::move(dx[i]));
      }
      if (--e.node->waiting == 0) push(e.node);
    }
  }

  Tensors call(Node& node, const Tensors& dy) {
    detail::CurrentNode current(&node);
    Scope scope(node.name(), Phase::backward);
    try {
      Tensors dx = node.backward(dy);
      check(node.leaf() || dx.size() == node.next_functions.size() || dx.empty(), "backward of ",
            node.name(), " returned ", dx.size(), " gradients for ", node.next_functions.size(),
            " inputs");
      if (!options_.retain_graph && !options_.create_graph) node.release_saved();
      if (AnomalyMode::enabled()) detail::check_no_nan("backward", node.name(), dx);
      return dx;
    } catch (const Error& error) {
      add_context_and_throw(node, dy, error);
    }
  }

  /// Keeps what the targets asked for; a leaf may also be a target of the sweep around this one (a
  /// parameter inside a recomputed segment). True if nothing further is to be done: `node` is a leaf
  /// that is a target, or leaves do not accumulate in this sweep.
  bool capture(Node& node, const Tensors& dy) {
    bool found = take(node, dy);
    for (size_t i = 0; node.leaf() && i + 1 < running().size(); ++i)
      found |= running()[i]->take(node, dy);
    return node.leaf() && (found || !accumulate_);
  }
  bool take(Node& node, const Tensors& dy) {
    bool found = false;
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (targets_[i].node.get() != &node) continue;
      found = true;
      const Tensor& g = dy[size_t(targets_[i].output_nr)];
      if (g) accumulate(captured_[i], g);
    }
    return found;
  }

  void clear_slots(Node* root) {
    std::vector<Node*> stack{root};
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      if (std::exchange(node->task, 0) != id_) continue;
      node->gradient_slots.clear();
      for (const Edge& e : node->next_functions)
        if (e.node) stack.push_back(e.node.get());
    }
  }

  BackwardOptions options_;
  bool accumulate_;
  uint64_t id_ = next_id();
  std::vector<Edge> roots_, targets_;
  std::vector<Ref<Node>> ready_;
  std::vector<OuterCount> outer_;
  Tensors captured_;
};

}  // namespace

bool detail::is_backward_running() { return Sweep::any_runs(); }

void detail::at_end_of_backward(std::function<void()> f) {
  check(is_backward_running(), "at_end_of_backward: no backward runs in this thread");
  Sweep::at_end(std::move(f));
}

namespace {

Tensor seed_for(const Tensor& root, Tensor seed) {
  if (!seed) {
    check(root.numel() == 1, "backward() needs a seed for ", root.describe(),
          ": only a tensor of one element has the seed 1 by itself");
    NoGrad guard;
    return ones_like(root);
  }
  check(seed.shape() == root.shape() && seed.dtype() == root.dtype() &&
            seed.device() == root.device(),
        "backward(): the seed is ", seed.describe(), ", the tensor is ", root.describe());
  return seed;
}

Tensors one(Tensor t) {
  Tensors list;
  list.push_back(std::move(t));
  return list;
}

void check_has_history(const Tensor& t, const char* what) {
  check(bool(t), what, ": the tensor is undefined");
  check(t.requires_grad(), what, ": nothing that led to ", t.describe(), " requires a gradient");
}

}  // namespace

Tensors run_backward(const Tensors& roots, Tensors seeds, const Tensors& targets, bool accumulate,
                     BackwardOptions options) {
  return Sweep(roots, targets, accumulate, options).run(std::move(seeds));
}

void Tensor::backward(Tensor seed, BackwardOptions options) const {
  check_has_history(*this, "backward()");
  run_backward(one(*this), one(seed_for(*this, std::move(seed))), {}, true, options);
}

Tensors grad(const Tensor& y, const Tensors& x, Tensor seed, BackwardOptions options) {
  check_has_history(y, "grad()");
  for (const Tensor& t : x) check_has_history(t, "grad(), with respect to a tensor");
  return run_backward(one(y), one(seed_for(y, std::move(seed))), x, false, options);
}

}  // namespace gradus
