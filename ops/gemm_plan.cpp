#include "ops/gemm_plan.h"

#if defined(GRADUS_CUDA)
#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

namespace gradus::lt {
namespace {

cudaDataType_t cuda_type(DType t) {
  switch (t) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      fail("gemm: no product of ", t, " matrices");
  }
}

bool uses_tf32(const Gemm& g) { return g.type == DType::f32 && AllowTf32::in_force(); }

cublasComputeType_t arithmetic(const Gemm& g) {
  if (g.type == DType::f64) return CUBLAS_COMPUTE_64F;
  return uses_tf32(g) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// Alignment of a pointer, as far as it matters.
uint32_t alignment(const void* p) { return 1u << std::min(8, std::countr_zero(uintptr_t(p))); }

cublasLtEpilogue_t code_of(const Epilogue& e) {
  switch (e.gelu) {
    case Epilogue::Gelu::forward:
      return e.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::Gelu::backward:
      return CUBLASLT_EPILOGUE_DGELU;
    default:
      return e.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

decltype(Plan::a) layout(DType type, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                         int64_t stride) {
  cublasLtMatrixLayout_t l = nullptr;
  check(cublasLtMatrixLayoutCreate(&l, cuda_type(type), uint64_t(rows), uint64_t(cols), ld),
        "describing a matrix");
  decltype(Plan::a) owner(l);
  auto set = [&](cublasLtMatrixLayoutAttribute_t what, const auto& value) {
    check(cublasLtMatrixLayoutSetAttribute(l, what, &value, sizeof value), "describing a batch");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(batch));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  return owner;
}

void set(const Plan& plan, cublasLtMatmulDescAttributes_t what, const auto& value) {
  check(cublasLtMatmulDescSetAttribute(plan.operation.get(), what, &value, sizeof value),
        "describing a product");
}

}  // namespace

Key key_of(const Gemm& g, const Operands& x, const Epilogue& e) {
  uint64_t kind = 0;
  auto append = [&](auto value, int bits) { kind = kind << bits | uint64_t(value); };
  append(g.transpose_a, 1), append(g.transpose_b, 1);
  append(g.type, 3), append(g.type_c, 3);
  for (const void* p : {x.a, x.b, static_cast<const void*>(x.c)})
    append(std::min(8, std::countr_zero(uintptr_t(p))), 4);
  append(g.beta != 0, 1), append(uses_tf32(g), 1);
  append(e.bias != nullptr, 1), append(e.gelu, 2);
  return {{g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.batch, g.stride_a, g.stride_b, g.stride_c,
           int64_t(kind)}};
}

std::string describe(const Gemm& g, const Operands& x, const Epilogue& e) {
  std::ostringstream out;
  out << g.type << '>' << g.type_c << (uses_tf32(g) ? " tf32 " : " ") << (g.transpose_a ? 'T' : 'N')
      << (g.transpose_b ? 'T' : 'N') << ' ' << g.m << " x " << g.n << " x " << g.k << " ld "
      << g.lda << ' ' << g.ldb << ' ' << g.ldc;
  if (g.batch > 1)
    out << " batch " << g.batch << " by " << g.stride_a << ' ' << g.stride_b << ' ' << g.stride_c;
  out << " align " << alignment(x.a) << ' ' << alignment(x.b) << ' ' << alignment(x.c);
  if (g.beta != 0) out << " added";
  if (e.bias) out << " bias";
  if (e.gelu != Epilogue::Gelu::none)
    out << (e.gelu == Epilogue::Gelu::forward ? " gelu" : " gelu'");
  return out.str();
}

void Plan::point_to(const Epilogue& e) {
  if (e.bias != bias) set(*this, CUBLASLT_MATMUL_DESC_BIAS_POINTER, e.bias);
  if (e.pre_gelu != pre_gelu) set(*this, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, e.pre_gelu);
  bias = e.bias, pre_gelu = e.pre_gelu;
}

Plan make_plan(const Gemm& g, const Epilogue& e) {
  check((!e.bias && e.gelu == Epilogue::Gelu::none) || g.batch == 1,
        "gemm: an epilogue of a batch of ", g.batch, " products");
  Plan p;
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, arithmetic(g),
                                 g.type == DType::f64 ? CUDA_R_64F : CUDA_R_32F),
        "describing a product");
  p.operation.reset(operation);
  auto form = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(p, CUBLASLT_MATMUL_DESC_TRANSA, form(g.transpose_b));
  set(p, CUBLASLT_MATMUL_DESC_TRANSB, form(g.transpose_a));
  set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, code_of(e));
  if (e.gelu != Epilogue::Gelu::none) {
    check(g.beta == 0 && g.n % 8 == 0 && size_of(g.type_c) == 2 && alignment(e.pre_gelu) >= 16,
          "gemm: no gelu on the way of ", g.type_c, " rows of ", g.n, " with β = ", g.beta);
    set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.n);
  }
  p.point_to(e);
  p.a = g.transpose_b ? layout(g.type, g.k, g.n, g.ldb, g.batch, g.stride_b)
                      : layout(g.type, g.n, g.k, g.ldb, g.batch, g.stride_b);
  p.b = g.transpose_a ? layout(g.type, g.m, g.k, g.lda, g.batch, g.stride_a)
                      : layout(g.type, g.k, g.m, g.lda, g.batch, g.stride_a);
  p.c = layout(g.type_c, g.n, g.m, g.ldc, g.batch, g.stride_c);
  return p;
}

std::vector<cublasLtMatmulAlgo_t> algorithms(cublasLtHandle_t handle, const Plan& plan,
                                             const Gemm& g, const Operands& x, int count) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm");
  Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> owner(preference);
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value),
          "choosing an algorithm");
  };
  // Partial sums of a split k are added in a fixed order, in the type of the arithmetic: the other
  // schemes round in the output type or depend on which block comes first.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(x.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(x.a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(x.c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(x.c));
  std::vector<cublasLtMatmulHeuristicResult_t> found(size_t(count),
                                                     cublasLtMatmulHeuristicResult_t{});
  int n = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, plan.operation.get(), plan.a.get(), plan.b.get(),
                                       plan.c.get(), plan.c.get(), preference, count, found.data(),
                                       &n),
        "choosing an algorithm");
  std::vector<cublasLtMatmulAlgo_t> result;
  for (int i = 0; i < n; ++i)
    if (found[size_t(i)].state == CUBLAS_STATUS_SUCCESS) result.push_back(found[size_t(i)].algo);
  check(!result.empty(), "gemm: cuBLASLt has no algorithm for ", g.m, " × ", g.n, " × ", g.k);
  return result;
}

bool fits(cublasLtHandle_t handle, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle, plan.operation.get(), plan.a.get(), plan.b.get(),
                                 plan.c.get(), plan.c.get(), &algorithm,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kWorkspace;
}

std::vector<cublasLtMatmulAlgo_t> with_variants(cublasLtHandle_t handle, const Plan& plan,
                                                const std::vector<cublasLtMatmulAlgo_t>& named) {
  std::vector<cublasLtMatmulAlgo_t> all = named;
  auto add = [&](cublasLtMatmulAlgo_t a, uint16_t cluster, uint32_t swizzle) {
    auto set = [&](cublasLtMatmulAlgoConfigAttributes_t what, const auto& value) {
      return cublasLtMatmulAlgoConfigSetAttribute(&a, what, &value, sizeof value) ==
             CUBLAS_STATUS_SUCCESS;
    };
    if (!set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster) ||
        !set(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, swizzle))
      return;
    const auto is_a = [&](const auto& b) { return memcmp(&a, &b, sizeof a) == 0; };
    if (!fits(handle, plan, a) || std::any_of(all.begin(), all.end(), is_a)) return;
    all.push_back(a);
  };
  for (const cublasLtMatmulAlgo_t& a : named)
    for (int cluster = CUBLASLT_CLUSTER_SHAPE_1x1x1; cluster <= CUBLASLT_CLUSTER_SHAPE_4x4x1;
         ++cluster)
      for (uint32_t swizzle : {0, 1}) add(a, uint16_t(cluster), swizzle);
  return all;
}

cublasStatus_t Call::run(const cublasLtMatmulAlgo_t& algorithm) const {
  float alpha32 = float(g.alpha), beta32 = float(g.beta);
  bool f64 = g.type == DType::f64;
  const void* alpha = f64 ? static_cast<const void*>(&g.alpha) : &alpha32;
  const void* beta = f64 ? static_cast<const void*>(&g.beta) : &beta32;
  return cublasLtMatmul(handle, plan.operation.get(), alpha, x.b, plan.a.get(), x.a, plan.b.get(),
                        beta, x.c, plan.c.get(), d, plan.c.get(), &algorithm, workspace, kWorkspace,
                        stream);
}

}  // namespace gradus::lt

#endif
