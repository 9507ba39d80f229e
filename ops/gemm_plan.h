#pragma once
// A kind of product as cuBLASLt knows it: described once, run often. Only with CUDA.
//
// cuBLASLt thinks in columns: a row-major (m, n) matrix is its column-major (n, m) matrix, so the product
// it is asked for is   Cᵀ (n, m) = op(B)ᵀ (n, k) · op(A)ᵀ (k, m),   and its first operand is our second.
// A row of our C is a column of its D: what it adds to each column is our row bias.
#if defined(GRADUS_CUDA)
#include <cublasLt.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda.h"
#include "ops/gemm.h"

namespace gradus {

inline void check(cublasStatus_t status, Message what) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(what, ": cuBLASLt says ", cublasLtGetStatusString(status));
}

namespace lt {

inline constexpr size_t kWorkspace = 32 << 20;

/// Pointers of one product.
struct Operands {
  const void *a, *b;
  void* c;
};

/// All that an algorithm may depend on, in words that are compared and hashed as they lie.
struct Key {
  std::array<int64_t, 11> words;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = 0;
    for (int64_t w : key.words) h = (h ^ uint64_t(w)) * 0x9e3779b97f4a7c15, h ^= h >> 29;
    return h;
  }
};
Key key_of(const Gemm& g, const Operands& x, const Epilogue& e);
/// The same for people and files: "bf16 bf16>f32 TN 768 x 3072 x 65536 …".
std::string describe(const Gemm& g, const Operands& x, const Epilogue& e);

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* p) const {
    (void)destroy(p);
  }
};
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

struct Plan {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a, b, c;  // a: our second operand
  cublasLtMatmulAlgo_t algorithm{};
  const void *bias = nullptr, *pre_gelu = nullptr;  // which the description names

  /// Makes the description name the pointers of `e`.
  void point_to(const Epilogue& e);
};

/// Everything but the algorithm.
Plan make_plan(const Gemm& g, const Epilogue& e);

/// At most `count` algorithms for such a product, the one that is guessed to be fastest first. Error
/// when there is none.
std::vector<cublasLtMatmulAlgo_t> algorithms(cublasLtHandle_t handle, const Plan& plan,
                                             const Gemm& g, const Operands& x, int count);
/// Whether cuBLASLt takes this algorithm for such a product, with the workspace that there is.
bool fits(cublasLtHandle_t handle, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm);
/// `named`, and each of them with other clusters of blocks and the other order of tiles, as far as cuBLASLt
/// takes it: it names some eight itself, and one in three products is a few percent faster so.
std::vector<cublasLtMatmulAlgo_t> with_variants(cublasLtHandle_t handle, const Plan& plan,
                                                const std::vector<cublasLtMatmulAlgo_t>& named);

/// One product, to be run with any algorithm: D ← α … + β C.
struct Call {
  cublasLtHandle_t handle;
  const Plan& plan;
  const Gemm& g;
  Operands x;
  void* d;
  void* workspace;
  cudaStream_t stream;
  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm) const;
};

}  // namespace lt
}  // namespace gradus
#endif
