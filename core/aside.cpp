#include "core/aside.h"

#include <utility>

#include "core/event.h"
#include "core/memory_pool.h"
#include "core/thread_device.h"

namespace gradus {

#if defined(GRADUS_CUDA)

namespace {

constexpr size_t kDevices = 16;
constinit thread_local MemoryPool* pools_aside[kDevices] = {};

/// The stream that is not in use at present; its kernels go before those of the other.
cudaStream_t make_stream_aside() {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities of streams");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
        "creating a stream");
  return stream;
}

void exchange(cuda::ThreadDevice& t, Device device) {
  std::swap(t.stream, t.other);
  std::swap(thread_pool(device), pools_aside[device.index]);
  t.aside = !t.aside;
}

}  // namespace

Mark::Mark(Device device) : device_(device) {
  if (!device.is_cuda()) return;
  const cudaStream_t stream = cuda::stream(device);
  event_ = cuda::make_event();
  check(cudaEventRecord(static_cast<cudaEvent_t>(event_.get()), stream), "recording an event");
}

void Mark::join() const {
  if (event_)
    check(cudaStreamWaitEvent(cuda::stream(device_), static_cast<cudaEvent_t>(event_.get()), 0),
          "waiting for an event");
}

Aside::Aside(Device device) : device_(device) {
  if (!device.is_cuda()) return;
  cuda::ThreadDevice& t = cuda::thread_device_of(device);
  check(!t.aside, "work aside, inside of work aside: there are two streams, no third");
  check(!thread_pool(device)->is_private,
        "work aside while a CUDA graph is captured: not supported");
  if (!t.other) t.other = make_stream_aside();
  MemoryPool*& pool = pools_aside[device.index];
  if (!pool) pool = new MemoryPool(device, false);  // outlives the thread, as its other pool does
  const Mark fork(device);
  exchange(t, device);
  trace_ = std::exchange(detail::trace, nullptr);
  fork.join();
}

Aside::~Aside() {
  if (!device_.is_cuda()) return;
  exchange(cuda::thread_device_of(device_), device_);
  detail::trace = trace_;
}

bool cuda::is_aside(Device device) { return device.is_cuda() && thread_device_of(device).aside; }

#else

Mark::Mark(Device) {}
void Mark::join() const {}
Aside::Aside(Device device) : device_(device) {}
Aside::~Aside() = default;
bool cuda::is_aside(Device) { return false; }

#endif

}  // namespace gradus
