#pragma once
// Matrix products on raw memory: what matmul, linear and attention are made of.
#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"

namespace gradus {

/// One product of row-major matrices, or a batch of them:
///
///   C ← α op(A) op(B) + β C        op(A) (m, k),  op(B) (k, n),  C (m, n)
///
/// op(X) is X, or Xᵀ where transposed: A is then stored as (k, m), B as (n, k). The distance between
/// neighbouring rows as stored is lda, ldb, ldc; between neighbouring matrices of the batch it is
/// stride_a, stride_b, stride_c; both in elements. A stride of 0 uses one matrix for the whole batch.
///
/// β = 0 does not read C, which may hold anything, NaN included. k = 0 or α = 0 leaves β C and reads
/// neither A nor B. Sums are formed in double for f64 and in float for f32, bf16 and f16. (An AVX-512
/// processor that multiplies bf16 by itself takes subnormal numbers for zero in doing so.)
struct Gemm {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  double alpha = 1, beta = 0;
  DType type = DType::f32;    // of A and B
  DType type_c = DType::f32;  // of C: the same; or f32 where A and B are bf16 or f16
};

/// The product on the CPU, over omp_get_max_threads() threads, or one if called in a parallel region.
/// C must not overlap A or B. Equal inputs give equal bits, whatever the number of threads.
void gemm_cpu(const Gemm& g, const void* a, const void* b, void* c);

/// The product on a GPU, in the order of this thread's stream, through cuBLASLt. f32 is computed in
/// full f32, not tf32. Equal calls give equal bits. `bias` (n, in the type of C), if not null, is added
/// to every row; the batch is then 1 and k is not 0.
void gemm_cuda(const Gemm& g, Device device, const void* a, const void* b, void* c,
               const void* bias = nullptr);

}  // namespace gradus
