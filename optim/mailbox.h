#pragma once
// What host and device tell each other about a step, without waiting for each other: the host posts what the step
// shall do before it asks for its kernels, the device leaves what came of it.
#include "core/device.h"
#include "optim/step_numbers.h"

namespace gradus::optim {

/// Letters for the last kAhead steps, in memory that both sides can address.
class Mailbox {
 public:
  explicit Mailbox(Device device);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  Device device() const { return device_; }
  MailSlot* slots() const { return slots_; }  // kAhead of them; step k uses slot k % kAhead
  bool has_record(int64_t attempt) const;
  /// Waits for the device if need be. Error when the step's kernels were never enqueued, when kAhead
  /// later steps have taken its place, and when a kernel before it recorded an Error.
  StepRecord record(int64_t attempt) const;

 private:
  Device device_;
  MailSlot* slots_ = nullptr;
};

}  // namespace gradus::optim
