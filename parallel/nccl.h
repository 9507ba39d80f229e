#pragma once
// NCCL's words for what gradus says.
#if defined(GRADUS_NCCL)
#include <nccl.h>

#include "core/check.h"
#include "core/dtype.h"
#include "parallel/communicator.h"

namespace gradus {
/// Error with NCCL's own words unless `status` is success.
template <class... Values>
void check(ncclResult_t status, Message what, const Values&... values) {
  if (status != ncclSuccess) [[unlikely]]
    fail(what, values..., ": NCCL says ", ncclGetErrorString(status), "; ",
         ncclGetLastError(nullptr));
}
}  // namespace gradus

namespace gradus::parallel {

inline ncclDataType_t nccl_type(DType t) {
  switch (t) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u8:
      return ncclUint8;
  }
  fail("NCCL carries no ", t);
}

inline ncclRedOp_t nccl_reduction(Reduce how) { return how == Reduce::sum ? ncclSum : ncclMax; }

}  // namespace gradus::parallel
#endif
