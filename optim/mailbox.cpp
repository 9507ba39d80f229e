#include "optim/mailbox.h"

#include <atomic>
#include <new>

#include "core/check.h"
#include "core/cuda.h"

namespace gradus::optim {

Mailbox::Mailbox(Device device) : device_(device) {
  constexpr size_t kBytes = kAhead * sizeof(MailSlot);
  void* memory = nullptr;
#if defined(GRADUS_CUDA)
  if (device.is_cuda()) {
    cuda::stream(device);  // makes it the current device
    check(cudaHostAlloc(&memory, kBytes, cudaHostAllocMapped | cudaHostAllocPortable),
          "allocating an optimizer's mailbox");
  }
#endif
  if (!memory) memory = ::operator new(kBytes);
  slots_ = new (memory) MailSlot[kAhead];
}

Mailbox::~Mailbox() {
#if defined(GRADUS_CUDA)
  if (device_.is_cuda()) {
    (void)cudaFreeHost(slots_);  // waits for kernels that may still write here
    return;
  }
#endif
  ::operator delete(slots_);
}

bool Mailbox::has_record(int64_t attempt) const {
  int64_t& written = slots_[attempt % kAhead].record.attempt;
  return std::atomic_ref(written).load(std::memory_order_acquire) == attempt;
}

StepRecord Mailbox::record(int64_t attempt) const {
  if (!has_record(attempt)) synchronize(device_);
  const StepRecord record = slots_[attempt % kAhead].record;
  check(record.attempt <= attempt, "the result of step ", attempt,
        " is gone: it can be read until ", kAhead, " more steps are asked for");
  check(record.attempt == attempt, "step ", attempt,
        " was asked for, but its kernels were not run");
  if (record.device_error) synchronize(device_);  // throws it, unless that was done
  return record;
}

}  // namespace gradus::optim
