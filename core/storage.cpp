#include "core/storage.h"

#include "core/allocator.h"
#include "core/cuda.h"

namespace gradus {

Storage::Storage(Device device, size_t bytes)
    : bytes_(bytes),
      stream_(device.is_cuda() ? cuda::stream_of(device) : nullptr),
      device_(device) {
  data_ = allocate(device, bytes, stream_);
}

Storage::~Storage() { deallocate(device_, data_, bytes_, stream_); }

}  // namespace gradus
