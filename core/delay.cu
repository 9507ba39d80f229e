#include "core/delay.h"

#include "core/cuda.h"

namespace gradus {

#if defined(__CUDACC__)

namespace {

__device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void delay_kernel(uint64_t length) {
  for (const uint64_t start = nanoseconds(); nanoseconds() - start < length;) {
  }
}

}  // namespace

void delay(Device device, double milliseconds) {
  if (!device.is_cuda()) return;
  delay_kernel<<<1, 1, 0, cuda::stream(device)>>>(uint64_t(milliseconds * 1e6));
  cuda::check_launch("delay kernel");
}

#else

void delay(Device device, double) { check_device(device); }

#endif

}  // namespace gradus
