#include "optim/mixed_precision.h"

#include <cstddef>

#include "core/cuda.h"

namespace gradus::optim {

MixedPrecision::MixedPrecision(Optimizer& optimizer, std::optional<GradScalerOptions> scaling)
    : optimizer_(optimizer) {
  const Tensor& parameters = optimizer.flat().parameters();
  const bool is_f16 = parameters.dtype() == DType::f16;
  check(!is_f16 || scaling, "f16 parameters need a loss scale: small gradients would vanish");
  check(is_f16 || !scaling, "a loss scale is for f16; parameters of ", parameters.dtype(),
        " need none");
  if (!scaling) return;
  validate(*scaling);
  static_assert(sizeof(GradScaler) % sizeof(float) == 0);
  scaler_ = empty({int64_t(sizeof(GradScaler) / sizeof(float))}, DType::f32, parameters.device());
  write(GradScaler{.options = *scaling});
}

Tensor MixedPrecision::seed() const {
  if (!scaler_) return {};
  return scaler_.alias({}, {}, int64_t(offsetof(GradScaler, seed) / sizeof(float)));
}

StepResult MixedPrecision::step(double lr, const StepOptions& options) {
  const Rates rates{lr, optimizer_.weight_decay()};
  StepResult result = request([&](int64_t) { return rates; }, options);
  run(options);
  return result;
}

StepResult MixedPrecision::request(const Optimizer::RatesOf& rates, const StepOptions& options) {
  return optimizer_.request(rates, options);
}

void MixedPrecision::run(const StepOptions& options) { optimizer_.run(options, scaler()); }

GradScaler::State MixedPrecision::state() const {
  check(is_scaled(), "there is no loss scale: the parameters are not of f16");
  return read().state();
}

void MixedPrecision::restore(const GradScaler::State& state) {
  check(is_scaled(), "there is no loss scale: the parameters are not of f16");
  GradScaler s = read();
  s.restore(state);
  write(s);
}

GradScaler MixedPrecision::read() const {
  GradScaler s;
  copy_bytes(&s, kCpu, scaler_.raw(), scaler_.device(), sizeof(s));
  return s;
}

void MixedPrecision::write(const GradScaler& s) {
  copy_bytes(scaler_.raw(), scaler_.device(), &s, kCpu, sizeof(s));
}

}  // namespace gradus::optim
