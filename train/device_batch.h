#pragma once
// A batch on the device, at the same place in every step: a step that was recorded as a CUDA graph
// reads it there, and no step waits for its copy.
#include "autograd/tensor.h"
#include "core/staging.h"
#include "train/dataset.h"

namespace gradus::train {

class DeviceBatch {
 public:
  DeviceBatch(Device device, int64_t rows, int64_t length);

  /// Enqueues the copy of a batch of that size, after what is already queued. Waits only for the copy
  /// before.
  void load(const Batch& batch);

  int64_t rows() const { return ids_.size(1); }

  /// Rows first … first + rows − 1, (rows, length): views of the batch that was loaded last.
  Tensor inputs(int64_t first, int64_t rows) const { return part(0, first, rows); }
  Tensor targets(int64_t first, int64_t rows) const { return part(1, first, rows); }

 private:
  Tensor part(int64_t which, int64_t first, int64_t rows) const;

  Tensor ids_;  // (2, rows, length): inputs, targets
  Staging staging_;
};

}  // namespace gradus::train
