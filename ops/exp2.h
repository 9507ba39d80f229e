#pragma once
// 2ˣ in one instruction of the GPU, off by 2⁻²² of itself: exact enough for what is rounded to 16 bits.
#if defined(__CUDACC__)

namespace gradus {

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace gradus
#endif
