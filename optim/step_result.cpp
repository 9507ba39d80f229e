#include "optim/step_result.h"

namespace gradus::optim {

const StepRecord& StepResult::record() const {
  if (!record_) record_ = mailbox_->record(attempt_);
  return *record_;
}

int64_t StepResult::zeros() const {
  check(record().zeros >= 0, "zeros were not counted: step(lr, {.count_zeros = true}) does");
  return record().zeros;
}

std::string StepResult::non_finite() const {
  const int64_t place = record().non_finite;
  for (const Slot& slot : *slots_)
    if (place >= slot.offset && place < slot.offset + slot.parameter.numel()) return slot.name();
  return "";
}

std::string StepResult::why_skipped() const {
  const StepRecord& r = record();
  if (r.applied) return "";
  const std::string name = non_finite();
  std::ostringstream text;
  if (std::isfinite(r.grad_norm)) {
    text << "the norm of the gradients, " << r.grad_norm << ", is above the limit";
    return text.str();
  }
  text << (name.empty() ? "the norm of all gradients" : "the gradient of " + name)
       << " is not finite";
  if (r.loss_scale == 1 && r.next_loss_scale == 1 && !r.scale_at_floor) return text.str();
  text << " at loss scale " << r.loss_scale;
  if (r.scale_at_floor)
    text << ", which is its minimum: the model itself overflows; lower the learning rate, or use "
            "bf16 or f32";
  else if (r.next_loss_scale < r.loss_scale)
    text << ", which becomes " << r.next_loss_scale << "; no action is needed";
  else
    text << ", which stays; no action is needed unless this goes on";
  return text.str();
}

}  // namespace gradus::optim
