#pragma once
// The kernels that measure gradients and decide a step; see optim/step_numbers.h.
#include <memory>

#include "optim/arena_layout.h"
#include "optim/mailbox.h"

namespace gradus::optim {

class StepControl {
 public:
  explicit StepControl(Device device);

  /// Host only: what the next step shall do. `rate` is called with each number of updates that may by
  /// then have been applied. Returns the number of the step.
  template <class Rate>
  int64_t request(StepRequest r, Rate&& rate) {
    const StepRecord known = make_room();
    r.first_update = known.updates;
    for (int64_t i = 0; i <= requested_ - known.attempt; ++i) r.rates[i] = rate(known.updates + i);
    return post(r);
  }

  // In the order of this thread's stream, without waiting; the same kernels each time.

  /// Σ g² over what is counted of the arena, the first element that is not finite, and how many are 0.
  void measure(const Tensor& gradients, const Counted& counted, bool count_zeros);
  /// By what was measured here; or, if `found` is defined, on all ranks together: (ranks, 3) f64.
  void decide(const Betas& betas, GradScaler* scaler, const Tensor& found = {});
  /// Both, with no kernel more than measure() has.
  void measure_and_decide(const Tensor& gradients, const Counted& counted, bool count_zeros,
                          const Betas& betas, GradScaler* scaler);
  /// In place of measure: gradients of which nothing is known count as short and finite.
  void measure_nothing();

  /// What was measured, a Measured as a tensor (1, 3) f64 on the device.
  Tensor measured() const;
  /// For the kernels of an update.
  StepNumbers* numbers() const { return static_cast<StepNumbers*>(numbers_.raw()); }

  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }
  /// Updates applied, once all steps so far are decided.
  int64_t updates() const { return mailbox_->record(requested_).updates; }
  void restore_updates(int64_t updates);

 private:
  StepRecord make_room();
  int64_t post(const StepRequest& r);

  std::shared_ptr<Mailbox> mailbox_;
  Tensor numbers_;  // a StepNumbers, on the device
  Tensor parts_;    // of Σ g², one for each block of threads
  int64_t requested_ = 0;
};

}  // namespace gradus::optim
