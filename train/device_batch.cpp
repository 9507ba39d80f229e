#include "train/device_batch.h"

#include <algorithm>

#include "ops/ops.h"

namespace gradus::train {

DeviceBatch::DeviceBatch(Device device, int64_t rows, int64_t length)
    : ids_(empty({2, rows, length}, DType::i32, device)),
      staging_(device, size_t(bytes_of(ids_))) {}

void DeviceBatch::load(const Batch& batch) {
  check(batch.rows == ids_.size(1) && batch.length == ids_.size(2), "a batch of ", batch.rows,
        " windows of ", batch.length, " was given where ", ids_.size(1), " of ", ids_.size(2),
        " are expected");
  auto* host = static_cast<int32_t*>(staging_.wait());
  host = std::copy(batch.inputs.begin(), batch.inputs.end(), host);
  std::copy(batch.targets.begin(), batch.targets.end(), host);
  ids_.will_write("loading a batch");
  staging_.copy_to(ids_.raw());
}

Tensor DeviceBatch::part(int64_t which, int64_t first, int64_t rows) const {
  return slice(select(ids_, 0, which), 0, first, first + rows);
}

}  // namespace gradus::train
