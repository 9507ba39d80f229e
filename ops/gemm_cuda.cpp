// Matrix products through cuBLASLt. How a product is described to it and which algorithm is taken is
// decided once for each kind of product and kept: a further call costs one look-up besides cuBLASLt's
// own time.
#include "ops/gemm.h"

#include "core/cuda.h"
#include "ops/gemm_timing.h"
#include "ops/gemm_tuning.h"

namespace gradus {

namespace {
bool& tf32_allowed() {
  thread_local bool allowed = false;
  return allowed;
}
}  // namespace

AllowTf32::AllowTf32() : before_(std::exchange(tf32_allowed(), true)) {}
AllowTf32::~AllowTf32() { tf32_allowed() = before_; }
bool AllowTf32::in_force() { return tf32_allowed(); }

}  // namespace gradus

#if defined(GRADUS_CUDA)
#include <unordered_map>

#include "core/aside.h"

namespace gradus {
namespace {

/// What a thread keeps for its products on one GPU. The workspace belongs to the thread's stream, so
/// no two products that run at once share it. Lives until the process ends, as the stream does.
struct Context {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::string machine;
  uint64_t tuning = 0;  // the generation that the plans were made in
  std::unordered_map<lt::Key, lt::Plan, lt::KeyHash> plans;
};

Context& context(Device device) {
  thread_local std::unordered_map<int, Context> mine;
  Context& c = mine[device.index];
  if (!c.handle) [[unlikely]] {
    check(cublasLtCreate(&c.handle), "starting cuBLASLt");
    c.workspace = cuda::allocate(device, lt::kWorkspace);
    check(c.workspace != nullptr, "gemm: no memory for a workspace of ", lt::kWorkspace, " bytes");
    c.machine = lt::machine(device);
  }
  if (uint64_t now = GemmTuning::generation(); c.tuning != now) [[unlikely]] {
    c.plans.clear();
    c.tuning = now;
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
               const Epilogue& epilogue) {
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  cudaStream_t stream = cuda::stream(device);
  check(!cuda::is_aside(device), "a matrix product aside; its workspace belongs to the main stream");
  if (g.k == 0 || g.alpha == 0) return scale_only(g, stream, c);
  Context& mine = context(device);
  lt::Operands x{a, b, c};
  auto run = [&](const lt::Plan& plan) {
    lt::Call call{mine.handle, plan, g, x, c, mine.workspace, stream};
    check(call.run(plan.algorithm), "matrix product");
  };
  lt::Key key = lt::key_of(g, x, epilogue);
  if (auto it = mine.plans.find(key); it != mine.plans.end()) [[likely]] {
    it->second.point_to(epilogue);
    return run(it->second);
  }
  lt::Plan plan = lt::make_plan(g, epilogue);
  lt::Call call{mine.handle, plan, g, x, c, mine.workspace, stream};
  lt::Chosen chosen = lt::choose(call, device, mine.machine, epilogue);
  plan.algorithm = chosen.algorithm;
  run(plan);
  if (chosen.final) mine.plans.emplace(key, std::move(plan));
}

}  // namespace gradus

#else

namespace gradus {
void gemm_cuda(const Gemm&, Device device, const void*, const void*, void*, const Epilogue&) {
  check_device(device);
}
}  // namespace gradus

#endif
