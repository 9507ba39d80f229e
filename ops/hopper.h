#pragma once
// The instructions that sm_90a adds for matrix products: products of a warpgroup (wgmma), a copy engine
// for tiles (TMA), and barriers in shared memory that both sides meet at (mbarrier).
//
// wgmma. A warpgroup, four consecutive warps, multiplies a 64×16 tile A by a 16×N tile B and adds to a
// 64×N tile C of floats. B lies in shared memory, A there or in registers, C in registers. With w the
// warp of the group, g = lane / 4, t = lane % 4, a thread holds
//
//   C (64×N)   c[4 n + 0], c[4 n + 1]   row 16 w + g,       columns 8 n + 2 t, 8 n + 2 t + 1
//              c[4 n + 2], c[4 n + 3]   row 16 w + g + 8,   the same columns
//   A (64×16)  a[0] row 16 w + g, columns 2 t, 2 t + 1      a[1] row + 8      a[2], a[3] columns + 8
//
// which is four mma.sync tiles one below the other (ops/mma.h): C, rounded to 16 bits, is again an A.
//
// How an operand lies in shared memory. Everything here uses *panels*: 64 columns of 16-bit numbers, so
// that a row is 128 bytes and eight rows are one block of 1024. Without care the same column of eight
// rows would lie in the same four banks. So the 16-byte chunk c of row r is kept at place c ^ (r % 8) of
// its row (the 128-byte swizzle); the copy engine writes that, and wgmma reads it.
//
//      place   0  1  2  3  4  5  6  7             a tile of D columns is D/64 panels, one after the
//   row 0      0  1  2  3  4  5  6  7  chunks     other, each (rows × 128) bytes, aligned to 1024
//   row 1      1  0  3  2  5  4  7  6
//   row 2      2  3  0  1  6  7  4  5   …
//
// A descriptor names the start of a 16-deep slice of an operand. The swizzle is a function of the address
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
//
// mbarrier. A barrier in shared memory with a phase bit: a phase ends when the expected number of threads
// have arrived and the announced number of bytes have been copied. wait(b, p) returns once phase p (0, 1,
// 0, …) is over; on a new barrier wait(b, 1) returns at once. A ring of stages needs two a stage:
//
//   producer:  wait(empty[s], phase ^ 1);  expect(full[s], bytes);  load(tile, map, full[s], …)
//   consumer:  wait(full[s], phase);  …products…;  arrive(empty[s])
//
// A kernel that uses this guards its body with #if defined(GRADUS_SM90A): other targets have none of it.
#if defined(__CUDACC__)
#include <cuda.h>  // types alone: the driver's function is found at run time

#include <cstdint>

#include "autograd/tensor.h"
#include "core/cuda.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GRADUS_SM90A
#endif

namespace gradus::hopper {

/// Whether the device runs code for sm_90a.
inline bool is_hopper(Device device) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index),
        "asking for the compute capability");
  return major == 9;
}

// ---- the copy engine

constexpr int kPanel = 64;  // columns of a panel

/// The driver's function that describes a tensor to the copy engine; looked for once.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                           cudaEnableDefault, &found),
          "looking for the copy engine");
#else
    check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found),
          "looking for the copy engine");
#endif
    check(found == cudaDriverEntryPointSuccess, "this driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encode;
}

/// x (B, H, T, D), or (B, groups, members, T, D) of any strides, as the copy engine sees it: it moves
/// panels of 64 columns × `rows` rows. x is 16-bit, starts at a multiple of 16 bytes, has rows of D that
/// are contiguous, and its other strides are multiples of 16 bytes. Rows beyond T are read as zeros and
/// not written. Kernels take a map as a `const __grid_constant__ CUtensorMap`.
inline CUtensorMap tensor_map(const Tensor& x, int rows) {
  constexpr int kRank = 5;  // (D, T, members, groups, B): innermost first
  int order[kRank] = {-1, -2, x.rank() == 5 ? -3 : 0, 1, 0};
  cuuint64_t sizes[kRank], strides[kRank];
  for (int i = 0; i < kRank; ++i) {
    bool exists = i != 2 || x.rank() == 5;
    sizes[i] = exists ? cuuint64_t(x.size(order[i])) : 1;
    strides[i] =
        sizes[i] > 1 ? cuuint64_t(x.strides()[order[i]]) * 2 : 16;  // of one alone it is arbitrary
  }
  cuuint32_t box[kRank] = {kPanel, cuuint32_t(rows), 1, 1, 1}, steps[kRank] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  CUresult result = tensor_map_encoder()(
      &map,
      x.dtype() == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      kRank, x.raw(), sizes, strides + 1, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "the copy engine does not take ", x.describe(), " with strides ",
        Shape(x.strides()), ": driver error ", int(result));
  return map;
}

#if defined(GRADUS_SM90A)

/// Brings `map` near before its first use.
__device__ inline void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// The corner of a panel. x (B, H, T, D) has one member in each group.
struct Corner {
  int column, row, member, group, batch;
};

/// One thread: copies the panel at `c` to shared memory at `to`, and tells `barrier` when it is there.
__device__ inline void load(uint32_t to, const CUtensorMap& map, uint32_t barrier, Corner c) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3,%4,%5,%6,%7}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c.column), "r"(c.row), "r"(c.member), "r"(c.group), "r"(c.batch)
      : "memory");
}

/// One thread: copies a panel from shared memory; commit_stores() closes a batch, and wait_stores() waits
/// until its shared memory has been read.
__device__ inline void store(const CUtensorMap& map, uint32_t from, Corner c) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5,%6}], [%1];" ::"l"(
          &map),
      "r"(from), "r"(c.column), "r"(c.row), "r"(c.member), "r"(c.group), "r"(c.batch)
      : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ inline void wait_stores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// The same until what it wrote can be seen.
__device__ inline void wait_writes() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// One thread: plain bytes, a multiple of 16, from and to addresses that are multiples of 16. The last
/// adds floats to those in memory; like store() it belongs to a batch.
__device__ inline void load_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ inline void store_bytes(void* to, uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void add_floats(float* to, uint32_t from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}

/// What this thread stored to shared memory is seen by later wgmma and copies.
__device__ inline void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// What other threads copied to global memory, and told by a flag, is seen by later copies.
__device__ inline void fence_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Four 8×8 tiles to shared memory; lane i gives the address of row i % 8 of tile i / 8.
__device__ inline void store_tiles(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2,
                                   uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}
/// The same, each tile transposed.
__device__ inline void store_tiles_transposed(uint32_t address, uint32_t r0, uint32_t r1,
                                              uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// ---- barriers; each is 8 bytes of shared memory at an address that is a multiple of 8

__device__ inline void init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// After the last init, before the __syncthreads() that shows the barriers to the others.
__device__ inline void fence_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and announces bytes that copies will bring.
__device__ inline void expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline bool is_over(uint32_t barrier, uint32_t phase) {
  uint32_t over;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; "
      "}"
      : "=r"(over)
      : "r"(barrier), "r"(phase)
      : "memory");
  return over != 0;
}
__device__ inline void wait(uint32_t barrier, uint32_t phase) {
  while (!is_over(barrier, phase)) {
  }
}

/// Barriers among `threads` threads of the block (a multiple of 32), numbered 1 … 15. meet() waits for
/// all of them; signal() counts without waiting.
__device__ inline void meet(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void signal(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// A warpgroup gives registers back to its block, or takes some: N a thread, a multiple of 8.
template <int N>
__device__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- operands and products

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
