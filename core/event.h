#pragma once
// Points in the work of a GPU's streams, as CUDA has them.
#include <memory>

#include "core/cuda.h"

#if defined(GRADUS_CUDA)

namespace gradus::cuda {

/// A cudaEvent_t of the current device, which goes with its last handle. `timed`: it tells times.
inline std::shared_ptr<void> make_event(bool timed = false) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
        "creating an event");
  return {event, [](void* e) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(e)); }};
}

}  // namespace gradus::cuda

#endif
