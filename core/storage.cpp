#include "core/storage.h"

namespace gradus {

Storage::Storage(Device device, size_t bytes)
    : memory_(allocate(device, bytes)), bytes_(bytes), device_(device) {}

Storage::~Storage() { deallocate(memory_, bytes_); }

}  // namespace gradus
