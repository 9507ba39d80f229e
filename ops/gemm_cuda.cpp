// Matrix products through cuBLASLt. It thinks in columns: a row-major (m, n) matrix is its column-major
// (n, m) matrix, so the product it is asked for is   Cᵀ (n, m) = op(B)ᵀ (n, k) · op(A)ᵀ (k, m),
// and its first operand is our second.
//
// Descriptors and the choice of the algorithm are made once for each kind of product and kept.
#include "ops/gemm.h"

#include "core/cuda.h"

#if defined(GRADUS_CUDA)
#include <cublasLt.h>

#include <map>
#include <tuple>

namespace gradus {

static void check(cublasStatus_t status, Message what) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(what, ": cuBLASLt says ", cublasLtGetStatusString(status));
}

namespace {

constexpr size_t kWorkspace = 32 << 20;

cudaDataType_t cuda_type(DType t) {
  switch (t) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: fail("gemm: no product of ", t, " matrices");
  }
}

/// A matrix as cuBLASLt sees it; freed with the plan that owns it.
cublasLtMatrixLayout_t layout(DType type, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                              int64_t stride) {
  cublasLtMatrixLayout_t l = nullptr;
  check(cublasLtMatrixLayoutCreate(&l, cuda_type(type), uint64_t(rows), uint64_t(cols), ld),
        "describing a matrix");
  int32_t count = int32_t(batch);
  check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "describing a batch");
  check(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride),
        "describing a batch");
  return l;
}

/// What is decided once for each kind of product.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool has_bias = false;
};

/// Alignment of a pointer, as far as it matters: the algorithms differ from 16 bytes down.
uint32_t alignment(const void* p) {
  uint32_t bytes = 256;
  while (uintptr_t(p) % bytes) bytes /= 2;
  return bytes;
}

Plan make_plan(cublasLtHandle_t handle, const Gemm& g, uint32_t align_a, uint32_t align_b,
               uint32_t align_c, bool has_bias) {
  Plan p;
  p.has_bias = has_bias;
  bool f64 = g.type == DType::f64;
  check(cublasLtMatmulDescCreate(&p.operation, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 f64 ? CUDA_R_64F : CUDA_R_32F),
        "describing a product");
  auto set = [&](cublasLtMatmulDescAttributes_t what, bool transpose) {
    cublasOperation_t op = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(p.operation, what, &op, sizeof op), "describing a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b);
  set(CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a);
  if (has_bias) {  // a row of our C is a column of its D, so what we call a row bias fits
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof epilogue),
          "describing a bias");
  }
  p.a = g.transpose_b ? layout(g.type, g.k, g.n, g.ldb, g.batch, g.stride_b)
                      : layout(g.type, g.n, g.k, g.ldb, g.batch, g.stride_b);
  p.b = g.transpose_a ? layout(g.type, g.m, g.k, g.lda, g.batch, g.stride_a)
                      : layout(g.type, g.k, g.m, g.lda, g.batch, g.stride_a);
  p.c = layout(g.type_c, g.n, g.m, g.ldc, g.batch, g.stride_c);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm");
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value),
          "choosing an algorithm");
  };
  // Partial sums of a split k are added in a fixed order, in the type of the arithmetic: the other
  // schemes round in the output type or depend on which block comes first.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_c);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, p.operation, p.a, p.b, p.c, p.c,
                                                         preference, 1, &found, &count);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  check(status, "choosing an algorithm");
  check(count > 0, "gemm: cuBLASLt has no algorithm for ", g.m, " × ", g.n, " × ", g.k);
  p.algorithm = found.algo;
  return p;
}

using Key = std::tuple<bool, bool, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                       int64_t, int64_t, int64_t, DType, DType, uint32_t, uint32_t, uint32_t, bool, bool>;

/// What a thread keeps for its products on one GPU. The workspace belongs to the thread's stream, so
/// no two products that run at once share it. Lives until the process ends, as the stream does.
struct Context {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Key, Plan> plans;
};

Context& context(Device device) {
  thread_local std::map<int, Context> mine;
  Context& c = mine[device.index];
  if (!c.handle) {
    check(cublasLtCreate(&c.handle), "starting cuBLASLt");
    c.workspace = cuda::allocate(device, kWorkspace);
    check(c.workspace != nullptr, "gemm: no memory for a workspace of ", kWorkspace, " bytes");
  }
  return c;
}

/// C ← β C for a product without terms; β is 0 or 1 in all that gradus does.
void scale_only(const Gemm& g, cudaStream_t stream, void* c) {
  check(g.beta == 0 || g.beta == 1, "gemm: an empty product with β = ", g.beta);
  if (g.beta == 1) return;
  size_t element = size_t(size_of(g.type_c));
  for (int64_t i = 0; i < g.batch; ++i)
    check(cudaMemset2DAsync(static_cast<char*>(c) + size_t(i * g.stride_c) * element,
                            size_t(g.ldc) * element, 0, size_t(g.n) * element, size_t(g.m), stream),
          "gemm: writing zeros");
}

}  // namespace

void gemm_cuda(const Gemm& g, Device device, const void* a, const void* b, void* c,
               const void* bias) {
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  cudaStream_t stream = cuda::stream(device);
  if (g.k == 0 || g.alpha == 0) return scale_only(g, stream, c);
  Context& ctx = context(device);
  Key key{g.transpose_a, g.transpose_b, g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.batch, g.stride_a,
          g.stride_b, g.stride_c, g.type, g.type_c, alignment(a), alignment(b), alignment(c),
          g.beta == 0, bias != nullptr};
  auto it = ctx.plans.find(key);
  if (it == ctx.plans.end())
    it = ctx.plans.emplace(key, make_plan(ctx.handle, g, alignment(a), alignment(b), alignment(c),
                                          bias != nullptr)).first;
  const Plan& p = it->second;
  if (bias)
    check(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                         sizeof bias),
          "passing the bias");
  float alpha32 = float(g.alpha), beta32 = float(g.beta);
  bool f64 = g.type == DType::f64;
  const void* alpha = f64 ? static_cast<const void*>(&g.alpha) : &alpha32;
  const void* beta = f64 ? static_cast<const void*>(&g.beta) : &beta32;
  check(cublasLtMatmul(ctx.handle, p.operation, alpha, b, p.a, a, p.b, beta, c, p.c, c, p.c,
                       &p.algorithm, ctx.workspace, kWorkspace, stream),
        "matrix product");
}

}  // namespace gradus

#else

namespace gradus {
void gemm_cuda(const Gemm&, Device device, const void*, const void*, void*, const void*) {
  check_device(device);
}
}  // namespace gradus

#endif
