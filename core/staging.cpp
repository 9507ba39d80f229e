#include "core/staging.h"

#include <cstdlib>

#include "core/cuda.h"
#include "core/device_failure.h"

namespace gradus {

#if defined(GRADUS_CUDA)

Staging::Staging(Device device, size_t bytes) : device_(device), bytes_(bytes) {
  if (!device.is_cuda()) {
    host_ = std::malloc(bytes);
    check(host_ != nullptr, "no memory for staging ", bytes, " bytes");
    return;
  }
  (void)cuda::stream(device);  // makes it the current device
  check(cudaHostAlloc(&host_, bytes, cudaHostAllocPortable), "allocating pinned memory");
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  event_ = event;
}

Staging::~Staging() {
  if (!device_.is_cuda()) {
    std::free(host_);
    return;
  }
  (void)cudaEventSynchronize(static_cast<cudaEvent_t>(event_));
  (void)cudaEventDestroy(static_cast<cudaEvent_t>(event_));
  (void)cudaFreeHost(host_);
}

void* Staging::wait() {
  if (!event_) return host_;
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "waiting for a copy");
  cuda::device_failure(device_).rethrow();
  return host_;
}

void Staging::enqueue(void* to, const void* from) {
  copy_bytes(to, device_, from, device_, bytes_);  // in stream order
  if (event_)
    check(cudaEventRecord(static_cast<cudaEvent_t>(event_), cuda::stream(device_)),
          "recording an event");
}

#else

Staging::Staging(Device device, size_t bytes) : device_(device), bytes_(bytes) {
  check_device(device);
  host_ = std::malloc(bytes);
  check(host_ != nullptr, "no memory for staging ", bytes, " bytes");
}

Staging::~Staging() { std::free(host_); }
void* Staging::wait() { return host_; }
void Staging::enqueue(void* to, const void* from) {
  copy_bytes(to, device_, from, device_, bytes_);
}

#endif

void Staging::copy_to(void* to) { enqueue(to, host_); }
void Staging::copy_from(const void* from) { enqueue(host_, from); }

}  // namespace gradus
