#include "core/cuda.h"

#include <atomic>
#include <cstring>

#include "core/thread_device.h"

namespace gradus {

void fail_index(const char* op, int64_t position, int64_t value, int64_t limit) {
  fail("index out of range in ", op, ": value ", value, " at position ", position,
       " is outside [0, ", limit, ")");
}

void check_device(Device device) {
  if (!device.is_cuda()) return;
#if defined(GRADUS_CUDA)
  check(device.index >= 0 && device.index < cuda_device_count(), "no such device: ", device, "; ",
        cuda_device_count(), " CUDA devices are here");
#else
  fail("device ", device,
       " was asked for, but this program is built without CUDA; build it with CUDA=1");
#endif
}

#if defined(GRADUS_CUDA)

int cuda_device_count() {
  static const int count = [] {
    int n = 0;
    bool ok = cudaGetDeviceCount(&n) == cudaSuccess;
    (void)cudaGetLastError();
    return ok ? n : 0;
  }();
  return count;
}

std::string device_name(Device device) {
  check_device(device);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device.index), "asking for the device's name");
  return properties.name;
}

bool has_bf16(Device device) {
  check_device(device);
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index),
        "asking for the compute capability");
  return major >= 8;
}

namespace cuda {
namespace {

/// While one lives, a capture of this thread's stream (core/cuda_graph.h) allows to take memory from the
/// system: what it forbids for the sake of order is harmless there.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  void exchange() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

ThreadDevice make_thread_device() {
  ThreadDevice t;
  check(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking), "creating a stream");
  check(cudaHostAlloc(&t.error, sizeof(DeviceError), cudaHostAllocMapped | cudaHostAllocPortable),
        "allocating the error record");
  memset(t.error, 0, sizeof(DeviceError));
  check(cudaMalloc(&t.error->claimed, sizeof(int)), "allocating the error record");
  check(cudaMemsetAsync(t.error->claimed, 0, sizeof(int), t.stream), "clearing the error record");
  check(cudaHostGetDevicePointer(&t.error_on_device, t.error, 0), "mapping the error record");
  t.failure = new DeviceFailure;  // lives on, as the stream does
  return t;
}

constexpr int kDevices = 16;
constinit thread_local ThreadDevice devices[kDevices] = {};  // streams live until the process ends
constinit thread_local int current_device = -1;

ThreadDevice& switch_to(Device device) {
  check_device(device);
  check(device.index < kDevices, "GPUs up to ", kDevices - 1, " can be used, got ", device);
  check(cudaSetDevice(device.index), "choosing the device");
  ThreadDevice& t = devices[device.index];
  if (!t.stream) t = make_thread_device();
  current_device = device.index;
  return t;
}

/// Every launch asks for its stream here, so the usual case is one comparison.
inline ThreadDevice& thread_device(Device device) {
  if (device.index == current_device) [[likely]]
    return devices[current_device];
  return switch_to(device);
}

}  // namespace

ThreadDevice& thread_device_of(Device device) { return thread_device(device); }

DeviceFailure& device_failure(Device device) { return *thread_device(device).failure; }

void DeviceFailure::set(const std::string& text) {
  std::lock_guard lock(mutex_);
  if (!is_set_) text_ = text;
  is_set_ = true;
}

void DeviceFailure::rethrow() {
  if (!is_set_) [[likely]]
    return;
  std::lock_guard lock(mutex_);
  is_set_ = false;
  throw Error(text_);
}

void* stream_of(Device device) { return device.is_cuda() ? thread_device(device).stream : nullptr; }

DeviceError* error_record(Device device) { return thread_device(device).error_on_device; }

int multiprocessors(Device device) {
  static std::atomic<int> counts[16] = {};  // threads may find it together
  int n = counts[device.index].load(std::memory_order_relaxed);
  if (!n) {
    check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device.index),
          "counting multiprocessors");
    counts[device.index].store(n, std::memory_order_relaxed);
  }
  return n;
}

void* allocate(Device device, size_t bytes) {
  thread_device(device);
  void* p = nullptr;
  const RelaxedCapture relaxed;
  cudaError_t status = cudaMalloc(&p, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "allocating device memory");
  return p;
}

void free(Device device, void* p) {
  thread_device(device);
  const RelaxedCapture relaxed;
  check(cudaFree(p), "freeing device memory");
}

int64_t free_memory(Device device) {
  thread_device(device);
  size_t free_bytes = 0, total = 0;
  check(cudaMemGetInfo(&free_bytes, &total), "asking for free memory");
  return int64_t(free_bytes);
}

void fill_bytes(Device device, void* p, int value, size_t bytes) {
  check(cudaMemsetAsync(p, value, bytes, stream(device)), "filling device memory");
}

}  // namespace cuda

void synchronize(Device device) {
  if (!device.is_cuda()) return;
  cuda::ThreadDevice& t = cuda::thread_device(device);
  check(cudaStreamSynchronize(t.stream), "waiting for the device");
  if (t.other) check(cudaStreamSynchronize(t.other), "waiting for the device");
  t.failure->rethrow();
  if (!t.error->set) return;
  cuda::DeviceError error = *t.error;
  t.error->set = 0;
  check(cudaMemsetAsync(t.error->claimed, 0, sizeof(int), t.stream), "clearing the error record");
  fail_index(error.op, error.position, error.value, error.limit);
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (bytes == 0) return;
  if (!to_device.is_cuda() && !from_device.is_cuda()) {
    memcpy(to, from, bytes);
    return;
  }
  Device gpu = from_device.is_cuda() ? from_device : to_device;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda::stream(gpu)), "copying memory");
  if (to_device != from_device) synchronize(gpu);
}

#else

int cuda_device_count() { return 0; }
std::string device_name(Device device) {
  check_device(device);
  return "cpu";
}
bool has_bf16(Device device) {
  check_device(device);
  return true;
}
void synchronize(Device device) { check_device(device); }
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  check_device(to_device);
  check_device(from_device);
  if (bytes) memcpy(to, from, bytes);
}

namespace cuda {
void* stream_of(Device device) {
  check_device(device);
  return nullptr;
}
void* allocate(Device device, size_t) {
  check_device(device);
  return nullptr;
}
void free(Device device, void*) { check_device(device); }
int64_t free_memory(Device) { return 0; }
void fill_bytes(Device device, void*, int, size_t) { check_device(device); }
}  // namespace cuda

#endif

}  // namespace gradus
