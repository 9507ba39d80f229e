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

/// What happens to a product on a GPU before it is stored. The batch is then 1, and k is not 0.
struct Epilogue {
  enum class Gelu { none, forward, backward };
  const void* bias = nullptr;  // (n), in the type of C: added to every row
  Gelu gelu = Gelu::none;      // in its tanh form, for C of 16 bits, n a multiple of 8, β = 0:
                               //   forward    C ← gelu(H), pre_gelu ← H = α op(A) op(B) + bias
      //   backward   C ← α op(A) op(B) ⊙ gelu'(pre_gelu), without bias
  void* pre_gelu = nullptr;  // (m, n), rows n apart, in the type of C, aligned to 16 bytes
};

/// The product on a GPU, in the order of this thread's stream, through cuBLASLt. Equal calls give
/// equal bits; which algorithm computes them, and how to have the fastest: ops/gemm_tuning.h.
void gemm_cuda(const Gemm& g, Device device, const void* a, const void* b, void* c,
               const Epilogue& epilogue = {});

/// While one lives, this thread's products of f32 matrices on a GPU take their operands rounded to tf32
/// (11 significant bits, the range of f32): several times faster, errors of 2⁻¹¹ in each factor instead
/// of 2⁻²⁴. Sums stay in f32. Without it f32 products are exact to f32.
class AllowTf32 {
 public:
  AllowTf32();
  ~AllowTf32();
  AllowTf32(const AllowTf32&) = delete;
  static bool in_force();

 private:
  bool before_;
};

}  // namespace gradus
