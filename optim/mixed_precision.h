#pragma once
// Training with 16-bit numbers where they save time, and 32-bit numbers where they must be exact.
//
//   f32 master θ ──round──▶ 16-bit θ ──▶ forward ──▶ loss (f32)
//        ▲                                             │ backward begins with S, the loss scale
//        │                                             ▼
//      update ◀── clip ◀── check ◀── 1/S ◀── Σ in f32 ◀── 16-bit gradients
//
//   1  prepare    sum gradients in f32 (optim/flat_buffer.h); what backward did not reach is 0
//   2  unscale    the norm is that of the gradients divided by S
//   3  check      any of them not finite: skip. Parameters, moments and counts stay as they are, and
//                 S is lowered; after many good steps it grows (optim/grad_scaler.h)
//   4  clip       shorten them to the largest norm
//   5  zeros      count those that are exactly 0, if asked for
//   6  step       update the masters
//   7  copy back  round the masters into the 16-bit parameters (of bf16, of a master only what the
//                 parameter lacks is kept: optim/split_master.h)
//
// 2 to 4 are one factor, found while the gradients are read once for their norm; 6 and 7 are one pass
// that applies it. All of it happens on the device, and nobody waits.
//
// bf16 has the exponents of f32: it needs masters, but no S. f16 needs both. f32 needs neither, and the
// same class does nothing more for it than the optimizer alone.
#include <optional>

#include "optim/optimizer.h"

namespace gradus::optim {

class MixedPrecision {
 public:
  /// `scaling` for f16, and only there. The optimizer must outlive this.
  explicit MixedPrecision(Optimizer& optimizer, std::optional<GradScalerOptions> scaling = {});

  /// What backward begins with in place of 1: loss.backward(precision.seed()). Undefined, which is 1,
  /// where nothing is scaled. The loss itself is not, so it can be shown as it is.
  Tensor seed() const;

  StepResult step(double lr, const StepOptions& options = {});
  // The two halves, as Optimizer has them.
  StepResult request(const Optimizer::RatesOf& rates, const StepOptions& options = {});
  void run(const StepOptions& options = {});

  bool is_scaled() const { return bool(scaler_); }
  /// What a checkpoint keeps of the loss scale. Waits for the device. Error where nothing is scaled.
  GradScaler::State state() const;
  void restore(const GradScaler::State& state);

 private:
  GradScaler* scaler() const { return scaler_ ? static_cast<GradScaler*>(scaler_.raw()) : nullptr; }
  GradScaler read() const;
  void write(const GradScaler& scaler);

  Optimizer& optimizer_;
  Tensor scaler_;  // a GradScaler on the device
};

}  // namespace gradus::optim
