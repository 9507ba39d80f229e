#pragma once
// The copy engine for tiles (TMA) and the barriers in shared memory that both sides meet at (mbarrier) of
// sm_90a. Products: ops/hopper_products.h.
//
// How a tile lies in shared memory. Everything here uses *panels*: 64 columns of 16-bit numbers, so
// that a row is 128 bytes and eight rows are one block of 1024. Without care the same column of eight
// rows would lie in the same four banks. So the 16-byte chunk c of row r is kept at place c ^ (r % 8) of
// its row (the 128-byte swizzle); the copy engine writes that, and wgmma reads it.
//
//      place   0  1  2  3  4  5  6  7             a tile of D columns is D/64 panels, one after the
//   row 0      0  1  2  3  4  5  6  7  chunks     other, each (rows × 128) bytes, aligned to 1024
//   row 1      1  0  3  2  5  4  7  6
//   row 2      2  3  0  1  6  7  4  5   …
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
/// A warp, after a __syncwarp(): lane 0 arrives for all, as one of kWarpArrivals that the barrier expects.
/// The racecheck of compute-sanitizer 2025.3 to 2026.4 does not see that this orders what the other lanes did. For
/// such tools -DGRADUS_ALL_LANES_ARRIVE makes each lane arrive for itself.
#if defined(GRADUS_ALL_LANES_ARRIVE)
constexpr int kWarpArrivals = 32;
#else
constexpr int kWarpArrivals = 1;
#endif
__device__ inline void arrive_for_warp(uint32_t barrier) {
  if (threadIdx.x % 32 < kWarpArrivals) arrive(barrier);
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

#endif  // GRADUS_SM90A

}  // namespace gradus::hopper
#endif
