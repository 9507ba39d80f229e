#include "optim/optimizer.h"

#include <cmath>

namespace gradus::optim {

Optimizer::Optimizer(std::vector<ParameterGroup> groups, const ArenaOptions& arena)
    : flat_(std::move(groups), arena),
      slots_(std::make_shared<const std::vector<Slot>>(flat_.slots())),
      counted_(flat_.layout().counted()),
      control_(flat_.parameters().device()) {}

StepResult Optimizer::step(double lr, const StepOptions& options) {
  const Rates rates{lr, weight_decay()};
  StepResult result = request([&](int64_t) { return rates; }, options);
  run(options);
  return result;
}

StepResult Optimizer::request(const RatesOf& rates, const StepOptions& options) {
  check(options.max_norm > 0 && options.skip_above > 0,
        "a step's largest norm must be positive, got ", options.max_norm, " to clip and ",
        options.skip_above, " to skip");
  StepRequest r;
  r.max_norm = options.max_norm, r.skip_above = options.skip_above;
  return ask(r, rates);
}

StepResult Optimizer::ask(StepRequest r, const RatesOf& rates) {
  validate();
  flat_.check_in_place();
  const int64_t attempt = control_.request(r, [&](int64_t updates) {
    const Rates now = rates(updates);
    check(std::isfinite(now.lr) && now.lr >= 0, "the learning rate of a step is ", now.lr);
    check(std::isfinite(now.weight_decay) && now.weight_decay >= 0,
          "the weight decay of a step is ", now.weight_decay);
    return now;
  });
  return StepResult(control_, slots_, attempt);
}

void Optimizer::run(const StepOptions& options, GradScaler* scaler) {
  flat_.finish_gradients();
  if (options.over_ranks) {
    control_.measure(flat_.gradients(), counted_, options.count_zeros);
    control_.decide(betas(), scaler, options.over_ranks(control_.measured()));
  } else {
    control_.measure_and_decide(flat_.gradients(), counted_, options.count_zeros, betas(), scaler);
  }
  apply();
}

void Optimizer::update(double lr, double gradient_scale) {
  const Rates rates{lr, weight_decay()};
  StepRequest r;
  r.gradient_scale = gradient_scale;
  ask(r, [&](int64_t) { return rates; });
  control_.measure_nothing();
  control_.decide(betas(), nullptr);
  apply();
}

void Optimizer::apply() {
  flat_.parameters().will_write("an optimizer's step");
  if (flat_.has_masters()) flat_.masters().will_write("an optimizer's step");
  for (const Arena& arena : arenas()) arena.values.will_write("an optimizer's step");
  apply(control_.numbers());
}

std::vector<NamedState> Optimizer::state() const {
  std::vector<NamedState> list;
  for (const Slot& slot : flat_.slots()) {
    const OwnPart own = flat_.layout().own_part(slot);
    if (own.begin == own.end && slot.parameter.numel() > 0) continue;
    const auto add = [&](const std::string& name, const StateView& value) {
      list.push_back({slot.name() + "." + name, value, slot.parameter, own.begin, own.end});
    };
    for (const Arena& arena : arenas())
      if (own.place < arena.values.numel())  // the last groups may be without
        add(arena.name, flat_.state_view(arena.values, slot));
    if (flat_.has_masters()) add("master", flat_.master(slot));
  }
  return list;
}

}  // namespace gradus::optim
