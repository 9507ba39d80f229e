#include "autograd/recompute.h"

#include "autograd/apply.h"

namespace gradus {
namespace {

struct Recompute {
  static constexpr auto name = "recompute";
  std::function<Tensors(const Tensors&)> segment;
  Generator* generator = nullptr;
  Generator::State before{};
  std::vector<Saved> inputs{};

  Tensors forward(const Tensors& x) {
    if (generator) before = generator->state();
    for (const Tensor& t : x) inputs.emplace_back() = t;
    return segment(x);
  }

  Tensors backward(const Tensors& dy, Needs need) {
    Tensors x, targets, roots, seeds;
    for (size_t i = 0; i < inputs.size(); ++i) {
      x.push_back(*inputs[i] ? (*inputs[i]).detach() : Tensor());
      if (need[int(i)]) targets.push_back(x[i].requires_grad_());
    }
    Tensors y = run_again(x);
    for (size_t k = 0; k < y.size(); ++k) {
      if (!dy[k] || !y[k].requires_grad()) continue;
      roots.push_back(y[k]);
      seeds.push_back(dy[k]);
    }
    Tensors found = run_backward(roots, std::move(seeds), targets,
                                 detail::may_accumulate_in_place(), {});
    Tensors dx(x.size());
    for (size_t i = 0, next = 0; i < x.size(); ++i)
      if (need[int(i)]) dx[i] = found[next++];
    return dx;
  }

  Tensors run_again(const Tensors& x) {
    EnableGrad guard;
    if (!generator) return segment(x);
    Generator::State now = generator->state();
    generator->restore(before);
    Tensors y = segment(x);
    generator->restore(now);
    return y;
  }
};

}  // namespace

Tensors recompute(std::function<Tensors(const Tensors&)> segment, const Tensors& inputs,
                  Generator* generator) {
  Tensors x = inputs;
  if (grad_enabled() && !detail::wants_grad(x)) {
    // Parameters inside may need gradients all the same: give the node a reason to be recorded.
    for (Tensor& t : x) {
      if (!t || !is_floating(t.dtype())) continue;
      t = t.detach().requires_grad_();
      break;
    }
    if (!detail::wants_grad(x)) return segment(x);
  }
  return apply(Recompute{.segment = std::move(segment), .generator = generator}, x);
}

}  // namespace gradus
