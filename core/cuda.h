#pragma once
// The one door to the CUDA runtime. A program built without CUDA has the same functions; they say so
// when a GPU is asked for. A thread works on one stream per device, its own, so ranks that are
// threads of one process do not meet.
#include <cstddef>
#include <cstdint>

#include "core/check.h"
#include "core/device.h"

#if defined(GRADUS_CUDA)
#include <cuda_runtime.h>
namespace gradus {
/// Error with CUDA's own words unless `status` is success.
inline void check(cudaError_t status, Message what) {
  if (status != cudaSuccess) [[unlikely]] {
    (void)cudaGetLastError();  // clears it, where it can be cleared
    fail(what, ": CUDA says ", cudaGetErrorName(status), ", ", cudaGetErrorString(status));
  }
}
}  // namespace gradus
#endif

namespace gradus {

/// GPUs that this program can use: 0 when built without CUDA or run without a GPU.
int cuda_device_count();

/// Error unless `device` exists here; says how to get one (build with CUDA=1, or another index).
void check_device(Device device);

/// The GPU's name, as its driver says it.
std::string device_name(Device device);

/// Whether the GPU multiplies bf16 (compute capability 8.0 or later).
bool has_bf16(Device device);

/// Waits until `device` has done what this thread asked of it, and throws the Error that a kernel
/// recorded (an index out of range). Nothing to do on the CPU.
void synchronize(Device device);

/// Copies bytes between devices, in stream order; waits when one end is the host.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

namespace cuda {

void* stream_of(Device device);               // this thread's cudaStream_t on `device`
void* allocate(Device device, size_t bytes);  // null when memory ran out
void free(Device device, void* p);
int64_t free_memory(Device device);
void fill_bytes(Device device, void* p, int value, size_t bytes);

#if defined(GRADUS_CUDA)

/// This thread's stream on `device`, which becomes the current device. Call it before each launch.
inline cudaStream_t stream(Device device) { return static_cast<cudaStream_t>(stream_of(device)); }

int multiprocessors(Device device);

/// Error unless the launch just made was accepted.
inline void check_launch(Message kernel) { check(cudaGetLastError(), kernel); }

// Note [errors on the device]
// A kernel that meets an index out of range writes what it saw here and skips the access. The
// next synchronize() throws it. The record is host memory that the device can write to, so looking
// at it costs nothing, and the device stays usable.
struct DeviceError {
  int set;  // 0: none
  int*
      claimed;  // in device memory: 1 once a thread reports. (Host memory knows no atomics of a GPU.)
  char op[32];
  int64_t position;  // of the first bad index found
  int64_t value;
  int64_t limit;  // valid values are 0 … limit − 1
};
/// The record of this thread's stream on `device`, as a pointer that kernels may use.
DeviceError* error_record(Device device);

#if defined(__CUDACC__)
/// Records that `value` at `position` is outside [0, limit).
__device__ inline void report_index(DeviceError* record, const char* op, int64_t position,
                                    int64_t value, int64_t limit) {
  if (atomicCAS(record->claimed, 0, 1) != 0) return;
  for (int i = 0; i < 31; ++i) {
    record->op[i] = op[i];
    if (!op[i]) break;
  }
  record->position = position;
  record->value = value;
  record->limit = limit;
  __threadfence_system();
  record->set = 1;
}
#endif

#endif

}  // namespace cuda

/// The Error of an index outside its table, the same words on every device.
[[noreturn]] void fail_index(const char* op, int64_t position, int64_t value, int64_t limit);

}  // namespace gradus
