#pragma once
// The tensor-core instructions of sm_80 and later, as functions of a warp.
//
// mma multiplies a 16×16 by a 16×8 tile of 16-bit numbers and adds to a 16×8 tile of floats. Each lane
// holds, with g = lane / 4 and t = lane % 4:
//
//   A (16×16)  a[0] row g, columns 2t 2t+1     a[1] row g+8      a[2], a[3] the same, columns + 8
//   B (16×8)   b[0] rows 2t 2t+1, column g     b[1] rows + 8
//   C (16×8)   c[0] c[1] row g, columns 2t 2t+1                  c[2] c[3] row g+8
//
// So the C of one product, rounded to 16 bits, is the A of the next: two neighbouring 16×8 tiles of C
// are one 16×16 tile of A. That is what lets attention keep its scores in registers.
#if defined(__CUDACC__)
#include <cstdint>

#include "core/dtype.h"

namespace gradus::mma {

/// c ← c + A B.
template <class T>
__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two floats as two 16-bit numbers in one register, the first in the low half.
template <class T>
__device__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return bits_of<uint32_t>(v);
  } else {
    __half2 v = __floats2half2_rn(low, high);
    return bits_of<uint32_t>(v);
  }
}

/// A tile of rows of D 16-bit numbers in shared memory. A row is D/8 chunks of 16 bytes; chunk c of row
/// r lies at place c ^ (r & 7), so that the eight rows that one load takes hit all 32 banks.
template <int D>
struct Tile {
  uint32_t base;  // shared-memory address
  __device__ uint32_t at(int row, int chunk) const {
    return base + uint32_t(row * D * 2 + ((chunk ^ (row & 7)) << 4));
  }
};

/// Four 8×8 tiles from shared memory; lane i gives the address of row i % 8 of tile i / 8.
__device__ inline void load(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// The 16×16 tile at (row, 16 k) of `tile`, as operand A.
template <int D>
__device__ void load_a(uint32_t (&a)[4], Tile<D> tile, int row, int k) {
  int lane = threadIdx.x % 32;
  load(a, tile.at(row + lane % 16, 2 * k + lane / 16));
}
/// Operand B of a product with the transpose of `tile`: rows n … n+15 are columns of B, and k counts
/// steps of 16 along D. b[0], b[1] serve the first eight columns, b[2], b[3] the others.
template <int D>
__device__ void load_b_transposed(uint32_t (&b)[4], Tile<D> tile, int n, int k) {
  int lane = threadIdx.x % 32;
  load(b, tile.at(n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}
/// Operand B of a product with `tile` itself: rows k … k+15, columns 16 n … 16 n + 15.
template <int D>
__device__ void load_b(uint32_t (&b)[4], Tile<D> tile, int k, int n) {
  int lane = threadIdx.x % 32;
  load_transposed(b, tile.at(k + lane % 16, 2 * n + lane / 16));
}

/// Starts a copy of 16 bytes to shared memory; zeros if not `valid`.
__device__ inline void copy_async(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most N of the committed groups are still on their way.
template <int N>
__device__ void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace gradus::mma
#endif
