#pragma once
// Parameters that are late, as on a GPU, where they are gathered beside the next forward.
#include <cmath>

#include "core/cuda.h"
#include "ops/ops.h"
#include "optim/flat_buffer.h"

namespace gradus::parallel {

/// Each bucket is NaN until somebody waits for it. (Of the versions of tensors this leaves no trace.)
inline void make_late(const optim::FlatBuffer& flat) {
  for (const optim::Bucket& b : flat.layout().buckets()) {
    const Tensor part = optim::part_of(flat.parameters(), b.all);
    const Tensor values = clone(part);
    fill_(part, NAN);
    part.join_before_use([values, to = part.raw()] {
      const Device device = values.device();
      copy_bytes(to, device, values.raw(), device, size_t(bytes_of(values)));
    });
  }
}

}  // namespace gradus::parallel
