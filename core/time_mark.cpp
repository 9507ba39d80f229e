#include "core/time_mark.h"

#include <chrono>

#include "core/event.h"

namespace gradus {
namespace {

double now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

#if defined(GRADUS_CUDA)

namespace {

cudaEvent_t event_of(const std::shared_ptr<void>& p) { return static_cast<cudaEvent_t>(p.get()); }

}  // namespace

TimeMark::TimeMark(Device device) {
  if (!device.is_cuda()) {
    ms_ = now();
    return;
  }
  const cudaStream_t stream = cuda::stream(device);
  event_ = cuda::make_event(true);
  check(cudaEventRecord(event_of(event_), stream), "recording an event");
}

void TimeMark::wait() const {
  if (event_) check(cudaEventSynchronize(event_of(event_)), "waiting for an event");
}

double TimeMark::since(const TimeMark& earlier) const {
  if (!event_) return ms_ - earlier.ms_;
  float ms = 0;
  check(cudaEventElapsedTime(&ms, event_of(earlier.event_), event_of(event_)),
        "asking for the time between events");
  return ms;
}

#else

TimeMark::TimeMark(Device device) : ms_(now()) { check_device(device); }
void TimeMark::wait() const {}
double TimeMark::since(const TimeMark& earlier) const { return ms_ - earlier.ms_; }

#endif

}  // namespace gradus
