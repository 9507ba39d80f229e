#pragma once
// A kernel that starts before the one ahead of it in its stream has ended (from Hopper on; CUDA calls it
// programmatic dependent launch). The microsecond between two kernels passes while the first one ends:
//
//   first kernel    ███████████████▒▒▒        from ▒ on, after let_next_start() in all of its blocks, …
//   second kernel                  ▒▒▒█████   … blocks of the second are placed, and wait_for_before() waits
//
// The first kernel need not know of it: a block that ends lets the next kernel start, too.
#include "core/cuda.h"

#if defined(__CUDACC__)

namespace gradus::cuda {

/// Nothing of what this block writes can be seen by the next kernel before it has waited.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Until the kernel before has ended, and what it wrote can be seen. Each block must call it before it
/// touches memory that others write or read. At least one block must call it: the kernel after this one
/// waits for this one alone, and relies on it for what was before.
__device__ inline void wait_for_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Launches kKernel, which calls wait_for_before(), so that it may start early.
template <auto kKernel, class... Arguments>
void launch_early(dim3 grid, dim3 block, cudaStream_t stream, const Arguments&... arguments) {
  static const bool waits = [] {  // machine code for older GPUs has no such instruction
    cudaFuncAttributes of{};
    check(cudaFuncGetAttributes(&of, kKernel), "asking for which GPU a kernel was compiled");
    return of.ptxVersion >= 90;
  }();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.stream = stream;
  config.attrs = &early, config.numAttrs = waits ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kKernel, arguments...), "early launch of a kernel");
}

}  // namespace gradus::cuda

#endif
