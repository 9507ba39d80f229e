#pragma once
// What became of a step, read when it is needed. Reading waits until the device has decided the step;
// until then the host can go on. A result can be read until kAhead more steps are asked for.
#include <optional>
#include <string>

#include "optim/flat_buffer.h"
#include "optim/step_control.h"

namespace gradus::optim {

class StepResult {
 public:
  StepResult() = default;
  StepResult(const StepControl& control, std::shared_ptr<const std::vector<Slot>> slots,
             int64_t attempt)
      : mailbox_(control.mailbox()), slots_(std::move(slots)), attempt_(attempt) {}

  /// Whether reading would not wait.
  bool is_ready() const { return record_ || mailbox_->has_record(attempt_); }

  /// False: a gradient was not finite (or the norm above its limit), and nothing was changed.
  bool applied() const { return record().applied; }
  double grad_norm() const { return record().grad_norm; }    // unscaled, before clipping
  double lr() const { return record().lr; }                  // that was used, or would have been
  int64_t updates() const { return record().updates; }       // applied so far
  double loss_scale() const { return record().loss_scale; }  // of this step; 1 without scaling
  /// Gradients that were exactly 0. Error unless the step was asked to count them.
  int64_t zeros() const;
  /// The first parameter of the arena with a gradient that is not finite; "" if there is none.
  std::string non_finite() const;

  /// Of a skipped step: why, and whether something should be done about it.
  std::string why_skipped() const;
  /// The loss scale is at its minimum and gradients overflow all the same: no later step will do better.
  bool is_hopeless() const { return record().scale_at_floor; }

  const StepRecord& record() const;

 private:
  std::shared_ptr<const Mailbox> mailbox_;
  std::shared_ptr<const std::vector<Slot>> slots_;
  int64_t attempt_ = 0;
  mutable std::optional<StepRecord> record_;
};

}  // namespace gradus::optim
