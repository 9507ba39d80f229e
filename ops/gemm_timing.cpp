// Timing algorithms against each other.
//
// The clock of a GPU drifts by more than algorithms differ. So all take turns, many times around, and the
// median of each counts; those far behind drop out, those close to the best run longer. A turn starts
// with a product that is not timed, while which the others queue up, so that the host's time is not
// measured.
#include "ops/gemm_timing.h"

#if defined(GRADUS_CUDA)
#include <algorithm>
#include <cstring>
#include <limits>

#include "autograd/tensor.h"
#include "ops/gemm_tuning.h"

namespace gradus::lt {
namespace {

constexpr int kCandidates = 16;
constexpr double kTurn = 800;         // microseconds
constexpr double kWorthwhile = 0.99;  // of the first one's time: else that stays
constexpr double kNever = std::numeric_limits<double>::infinity();

/// So many rounds for all whose median is at most `behind` times the best.
struct Stage {
  int rounds;
  double behind;
};
constexpr Stage kStages[] = {{1, kNever}, {4, 1.3}, {8, 1.04}};

struct Event {
  cudaEvent_t event = nullptr;
  Event() { check(cudaEventCreate(&event), "creating an event"); }
  ~Event() { (void)cudaEventDestroy(event); }
  Event(const Event&) = delete;
  void record(cudaStream_t stream) { check(cudaEventRecord(event, stream), "recording an event"); }
};

/// Microseconds of a product, or kNever where it cannot be run so.
double turn(const Call& call, const cublasLtMatmulAlgo_t& algorithm, int repeats) {
  if (call.run(algorithm) != CUBLAS_STATUS_SUCCESS) return kNever;
  Event begin, end;
  begin.record(call.stream);
  for (int i = 0; i < repeats; ++i) check(call.run(algorithm), "timing a product");
  end.record(call.stream);
  check(cudaEventSynchronize(end.event), "timing a product");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin.event, end.event), "timing a product");
  return double(ms) * 1000 / repeats;
}

struct Contestant {
  cublasLtMatmulAlgo_t algorithm;
  std::vector<double> times{};

  double median() const {
    if (times.empty()) return kNever;
    std::vector<double> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

using Contest = std::vector<Contestant>;

size_t best_of(const Contest& contest) {
  auto faster = [](const Contestant& a, const Contestant& b) { return a.median() < b.median(); };
  return size_t(std::min_element(contest.begin(), contest.end(), faster) - contest.begin());
}

void run(const Call& call, Contest& contest) {
  for (const Stage& stage : kStages) {
    double best = contest[best_of(contest)].median();
    int repeats = int(std::clamp(kTurn / best, 1.0, 20.0));
    std::vector<Contestant*> in;
    for (Contestant& c : contest)
      if (c.median() <= stage.behind * best) in.push_back(&c);
    for (int round = 0; round < stage.rounds; ++round)
      for (Contestant* c : in) c->times.push_back(turn(call, c->algorithm, repeats));
  }
}

/// A copy of C, aligned like it, gaps between its rows included.
struct Scratch {
  Tensor memory;
  void* data;
  Scratch(const Gemm& g, Device device, const void* c) {
    int64_t bytes = ((g.batch - 1) * g.stride_c + (g.m - 1) * g.ldc + g.n) * size_of(g.type_c);
    memory = empty({bytes + 512}, DType::u8, device);
    data =
        reinterpret_cast<void*>((uintptr_t(memory.raw()) + 255) / 256 * 256 + uintptr_t(c) % 256);
    copy_bytes(data, device, c, device, size_t(bytes));
  }
};

/// Where β ≠ 0 the products that are timed add to a copy of C.
GemmChoice time_all(Call call, Device device, const std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  std::optional<Scratch> scratch;
  if (call.g.beta != 0) call.x.c = scratch.emplace(call.g, device, call.x.c).data;
  Contest contest;
  for (const auto& algorithm : algorithms) contest.push_back({algorithm});
  run(call, contest);
  size_t best = best_of(contest);
  check(contest[best].median() < kNever, "gemm: all algorithms that cuBLASLt named fail");
  double first = contest[0].median();
  if (contest[best].median() > kWorthwhile * first) best = 0;
  GemmChoice choice{.time = contest[best].median(), .time_of_first = first};
  static_assert(sizeof choice.algorithm == sizeof(cublasLtMatmulAlgo_t));
  memcpy(&choice.algorithm, &contest[best].algorithm, sizeof choice.algorithm);
  return choice;
}

cublasLtMatmulAlgo_t algorithm_of(const GemmChoice& choice) {
  cublasLtMatmulAlgo_t algorithm;
  memcpy(&algorithm, &choice.algorithm, sizeof algorithm);
  return algorithm;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  check(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
  return status != cudaStreamCaptureStatusNone;
}

/// The choice as stored, if cuBLASLt still takes it for this product.
cublasLtMatmulAlgo_t checked(const Call& call, const GemmChoice& choice,
                             const std::string& product) {
  cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
  cublasLtMatmulHeuristicResult_t result{};
  cublasStatus_t status = cublasLtMatmulAlgoCheck(
      call.handle, call.plan.operation.get(), call.plan.a.get(), call.plan.b.get(),
      call.plan.c.get(), call.plan.c.get(), &algorithm, &result);
  check(status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspace,
        "gemm: the stored algorithm for ", product, " is refused by cuBLASLt (",
        cublasLtGetStatusString(status),
        "); delete the file of the GemmTuning, and it is timed again");
  return algorithm;
}

}  // namespace

std::string machine(Device device) {
  return device_name(device) + ", cuBLASLt " + std::to_string(cublasLtGetVersion());
}

Chosen choose(const Call& call, Device device, const std::string& machine,
              const Epilogue& epilogue) {
  auto first = [&](int n) { return algorithms(call.handle, call.plan, call.g, call.x, n); };
  GemmTuning* tuning = GemmTuning::current();
  if (!tuning) return {first(1)[0], true};
  const std::string product = describe(call.g, call.x, epilogue);
  if (auto choice = tuning->find(machine, product)) return {checked(call, *choice, product), true};
  if (is_captured(call.stream)) return {first(1)[0], false};
  GemmChoice fastest = time_all(call, device, first(kCandidates));
  return {algorithm_of(tuning->keep(machine, product, fastest)), true};
}

}  // namespace gradus::lt

#endif
