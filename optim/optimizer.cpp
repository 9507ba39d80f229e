#include "optim/optimizer.h"

#include <cmath>

#include "core/cuda.h"
#include "optim/grad_norm.h"

namespace gradus::optim {

StepResult Optimizer::step(double lr, StepOptions options) {
  flat_.finish_gradients();
  synchronize(flat_.parameters().device());
  StepResult result;
  result.grad_norm = power_sum({flat_.gradients()}).norm();
  result.applied = std::isfinite(result.grad_norm);
  if (result.applied)
    update(lr, clip_factor(result.grad_norm, options.max_norm));
  else
    result.non_finite = first_non_finite();
  return result;
}

void Optimizer::update(double lr, double gradient_scale) {
  check(std::isfinite(lr) && lr >= 0, "the learning rate of a step is ", lr);
  flat_.parameters().will_write("an optimizer's step");
  ++steps_;
  for (size_t g = 0; g < flat_.groups().size(); ++g) {
    const ParameterGroup& group = flat_.groups()[g];
    update_range(flat_.range(int(g)), {.lr = lr * group.lr_scale,
                                       .weight_decay_scale = group.weight_decay_scale,
                                       .gradient_scale = gradient_scale,
                                       .t = steps_});
  }
}

std::vector<NamedState> Optimizer::state() const {
  std::vector<Arena> all = arenas();
  if (flat_.has_masters()) all.push_back({"master", flat_.masters()});
  std::vector<NamedState> list;
  for (const FlatBuffer::Slot& slot : flat_.slots())
    for (const Arena& arena : all)
      list.push_back({slot.name() + "." + arena.name, flat_.view(arena.values, slot)});
  return list;
}

std::string Optimizer::first_non_finite() const {
  for (const FlatBuffer::Slot& slot : flat_.slots())
    if (!std::isfinite(power_sum({flat_.view(flat_.gradients(), slot)}, kInfinity).norm()))
      return slot.name();
  return "";  // each gradient is finite, only their norm is not
}

}  // namespace gradus::optim
