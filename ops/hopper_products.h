#pragma once
// Products of a warpgroup (wgmma), which sm_90a has.
//
// A warpgroup, four consecutive warps, multiplies a 64×16 tile A by a 16×N tile B and adds to a
// 64×N tile C of floats. B lies in shared memory, A there or in registers, C in registers. With w the
// warp of the group, g = lane / 4, t = lane % 4, a thread holds
//
//   C (64×N)   c[4 n + 0], c[4 n + 1]   row 16 w + g,       columns 8 n + 2 t, 8 n + 2 t + 1
//              c[4 n + 2], c[4 n + 3]   row 16 w + g + 8,   the same columns
//   A (64×16)  a[0] row 16 w + g, columns 2 t, 2 t + 1      a[1] row + 8      a[2], a[3] columns + 8
//
// which is four mma.sync tiles one below the other (ops/mma.h): C, rounded to 16 bits, is again an A.
//
// Operands lie in shared memory in panels of 64 columns, swizzled (ops/hopper.h). A descriptor names the
// start of a 16-deep slice. The swizzle is a function of the address
// bits alone (bits 4–6 ^= bits 7–9), so a slice may start inside a panel. Of a tile X (rows × columns):
//
//   as it stands, the sum over columns (S = Q Kᵀ: both Q and K): slice k starts 32 k bytes further,
//     blocks of eight rows are 1024 apart:                        along(address + 32 k)
//   transposed, the sum over rows (O = P V: B = V): slice k starts 16 rows = 2048 k bytes further,
//     panels lie `panel` bytes apart:                             across(address + 2048 k, panel)
//
// wgmma runs on its own. fence() before the first product that uses registers just written; commit()
// closes a batch; wait<n>(c) lets at most n batches run on and hands out c. Until then the registers
// of c, and of an A in registers, are not to be touched. What threads themselves stored to shared memory
// is seen by wgmma and TMA only after fence_async().
#include "ops/hopper.h"

#if defined(__CUDACC__)

namespace gradus::hopper {

#if defined(GRADUS_SM90A)

/// Fields in units of 16 bytes; 1 << 62 is the 128-byte swizzle.
__device__ inline uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(leading >> 4) << 16 |
         uint64_t(stride >> 4) << 32 | uint64_t(1) << 62;
}
/// A slice of an operand that is summed along its rows in memory (K-major).
__device__ inline uint64_t along(uint32_t address) { return descriptor(address, 16, 1024); }
/// A slice of an operand that is summed across its rows (MN-major); panels lie `panel` bytes apart.
__device__ inline uint64_t across(uint32_t address, uint32_t panel) {
  return descriptor(address, panel, 1024);
}

/// The descriptor of a slice that starts `bytes` further: one addition.
__device__ inline uint64_t further(uint64_t slice, uint32_t bytes) {
  return (slice & ~uint64_t(0xffffffff)) | (uint32_t(slice) + (bytes >> 4));
}

__device__ inline void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// The compiler must not move uses of c across this point.
template <int R>
__device__ void pin(float (&c)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
/// Waits until at most `kRunning` batches are unfinished; c, the result of a finished one, may be used.
template <int kRunning, int R>
__device__ void wait(float (&c)[R]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kRunning) : "memory");
  pin(c);
}

/// Whether the operand is summed along its rows in memory or across them.
enum Side { kAlong = 0, kAcross = 1 };

// c ← A B, or c + A B if `add`. PTX wants every register of C by name:
#define GRADUS_R0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define GRADUS_R1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define GRADUS_R2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define GRADUS_R3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define GRADUS_R4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define GRADUS_R5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define GRADUS_R6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define GRADUS_R7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define GRADUS_C4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define GRADUS_C16(i) GRADUS_C4(i), GRADUS_C4(i + 4), GRADUS_C4(i + 8), GRADUS_C4(i + 12)
#define GRADUS_C32(i) GRADUS_C16(i), GRADUS_C16(i + 16)
#define GRADUS_C48(i) GRADUS_C32(i), GRADUS_C16(i + 32)
#define GRADUS_C64(i) GRADUS_C32(i), GRADUS_C32(i + 32)
#define GRADUS_C96(i) GRADUS_C64(i), GRADUS_C32(i + 64)
#define GRADUS_C128(i) GRADUS_C64(i), GRADUS_C64(i + 64)

// The operands after C are numbered i0 …: A's descriptor or four registers, B's descriptor, add, sides.
#define GRADUS_WGMMA_SHARED(N, TYPE, R, C, i0, i1, i2, i3, i4)                                    \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #i2 ", 0; wgmma.mma_async.sync.aligned.m64n" #N \
               "k16.f32." TYPE "." TYPE " {" R "}, %" #i0 ", %" #i1 ", p, 1, 1, %" #i3 ", %" #i4  \
               "; }"                                                                              \
               : C(0)                                                                             \
               : "l"(a), "l"(b), "r"(int(add)), "n"(int(kA)), "n"(int(kB)))
#define GRADUS_WGMMA_REGISTERS(N, TYPE, R, C, i0, i1, i2, i3, i4, i5, i6)                         \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #i5 ", 0; wgmma.mma_async.sync.aligned.m64n" #N \
               "k16.f32." TYPE "." TYPE " {" R "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4  \
               ", p, 1, 1, %" #i6 "; }"                                                           \
               : C(0)                                                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)), "n"(int(kB)))
#define GRADUS_WGMMA(N, R, C, i0, i1, i2, i3, i4, i5, i6)                                          \
  template <class T, Side kA, Side kB>                                                             \
  __device__ inline void multiply(float(&c)[N / 2], uint64_t a, uint64_t b, bool add) {            \
    if constexpr (std::is_same_v<T, bf16>)                                                         \
      GRADUS_WGMMA_SHARED(N, "bf16", R, C, i0, i1, i2, i3, i4);                                    \
    else                                                                                           \
      GRADUS_WGMMA_SHARED(N, "f16", R, C, i0, i1, i2, i3, i4);                                     \
  }                                                                                                \
  template <class T, Side kB>                                                                      \
  __device__ inline void multiply(float(&c)[N / 2], const uint32_t(&a)[4], uint64_t b, bool add) { \
    if constexpr (std::is_same_v<T, bf16>)                                                         \
      GRADUS_WGMMA_REGISTERS(N, "bf16", R, C, i0, i1, i2, i3, i4, i5, i6);                         \
    else                                                                                           \
      GRADUS_WGMMA_REGISTERS(N, "f16", R, C, i0, i1, i2, i3, i4, i5, i6);                          \
  }

#define GRADUS_REGISTERS32 GRADUS_R0 "," GRADUS_R1
#define GRADUS_REGISTERS48 GRADUS_REGISTERS32 "," GRADUS_R2
#define GRADUS_REGISTERS64 GRADUS_REGISTERS48 "," GRADUS_R3
#define GRADUS_REGISTERS96 GRADUS_REGISTERS64 "," GRADUS_R4 "," GRADUS_R5
#define GRADUS_REGISTERS128 GRADUS_REGISTERS96 "," GRADUS_R6 "," GRADUS_R7
GRADUS_WGMMA(32, GRADUS_R0, GRADUS_C16, 16, 17, 18, 19, 20, 21, 22)
GRADUS_WGMMA(64, GRADUS_REGISTERS32, GRADUS_C32, 32, 33, 34, 35, 36, 37, 38)
GRADUS_WGMMA(96, GRADUS_REGISTERS48, GRADUS_C48, 48, 49, 50, 51, 52, 53, 54)
GRADUS_WGMMA(128, GRADUS_REGISTERS64, GRADUS_C64, 64, 65, 66, 67, 68, 69, 70)
GRADUS_WGMMA(192, GRADUS_REGISTERS96, GRADUS_C96, 96, 97, 98, 99, 100, 101, 102)
GRADUS_WGMMA(256, GRADUS_REGISTERS128, GRADUS_C128, 128, 129, 130, 131, 132, 133, 134)

#undef GRADUS_WGMMA
#undef GRADUS_WGMMA_SHARED
#undef GRADUS_WGMMA_REGISTERS

#endif  // GRADUS_SM90A

}  // namespace gradus::hopper
#endif
