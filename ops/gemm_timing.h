#pragma once
// The choice of an algorithm, see ops/gemm_tuning.h. Only with CUDA.
#if defined(GRADUS_CUDA)
#include "ops/gemm_plan.h"

namespace gradus::lt {

/// The GPU and the version of cuBLASLt: what a choice is good for.
std::string machine(Device device);

struct Chosen {
  cublasLtMatmulAlgo_t algorithm;
  bool final;  // false: the stream is being captured, so that nothing could be timed
};

/// The algorithm for `call`, on its own pointers: of the GemmTuning in force, else the first one of the
/// heuristic. Does not write to C where β ≠ 0; waits for the stream where it times.
Chosen choose(const Call& call, Device device, const std::string& machine,
              const Epilogue& epilogue);

}  // namespace gradus::lt
#endif
