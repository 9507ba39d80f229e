// Timing algorithms against each other.
//
// The clock of a GPU drifts by more than algorithms differ. So all take turns: kRounds times around, and
// the median of each counts. Those far behind after one turn are dropped. A turn starts with a product
// that is not timed, during which the others queue up, so that the host's time is not measured.
//
// Large products draw more power than a GPU is given, and it lowers its clock until they do not. Which
// algorithm is the fastest then depends on how much energy it takes. So the best few of the large ones run
// again, each for as long as it takes the clock to settle, and only then against time.
//
// A turn is a CUDA graph. For some algorithms cuBLASLt clears counters first, and there that costs more than
// in a stream: kernels that follow each other start without a pause, what is not a kernel lies between.
#include "ops/gemm_timing.h"

#if defined(GRADUS_CUDA)
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/tensor.h"
#include "ops/gemm_tuning.h"

namespace gradus::lt {
namespace {

constexpr int kCandidates = 16, kRounds = 9;
constexpr double kFarBehind = 1.3;    // times the best
constexpr double kWorthwhile = 0.99;  // of the first one's time: else that stays
constexpr double kTurn = 800;         // microseconds
constexpr double kLarge = 100;        // microseconds from which on a product is a large one
constexpr double kClose = 1.06;       // times the best: what runs again
constexpr double kSettle = 40000, kLongTurn = 40000;  // microseconds
constexpr int kLongRounds = 3;
constexpr double kNever = std::numeric_limits<double>::infinity();

using Algorithms = std::vector<cublasLtMatmulAlgo_t>;

struct Event {
  cudaEvent_t event = nullptr;
  Event() { check(cudaEventCreate(&event), "creating an event"); }
  ~Event() { (void)cudaEventDestroy(event); }
  Event(const Event&) = delete;
  void record(cudaStream_t stream) { check(cudaEventRecord(event, stream), "recording an event"); }
};

/// A product, some times.
struct Repeats {
  cudaGraphExec_t graph = nullptr;
  Repeats(const Call& call, const cublasLtMatmulAlgo_t& algorithm, int count) {
    cudaGraph_t calls = nullptr;
    check(cudaStreamBeginCapture(call.stream, cudaStreamCaptureModeThreadLocal),
          "timing a product");
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; ++i) status = call.run(algorithm);
    cudaError_t captured = cudaStreamEndCapture(call.stream, &calls);
    if (captured == cudaSuccess) captured = cudaGraphInstantiate(&graph, calls, 0);
    if (calls) (void)cudaGraphDestroy(calls);
    check(captured, "timing a product");
    check(status, "timing a product");
  }
  ~Repeats() {
    if (graph) (void)cudaGraphExecDestroy(graph);
  }
  Repeats(const Repeats&) = delete;
  void run(cudaStream_t stream) const { check(cudaGraphLaunch(graph, stream), "timing a product"); }
};

/// Microseconds of a product, or kNever where it cannot be run so; after it ran `before` times `repeats`
/// times.
double turn(const Call& call, const cublasLtMatmulAlgo_t& algorithm, int repeats, int before = 0) {
  if (call.run(algorithm) != CUBLAS_STATUS_SUCCESS) return kNever;
  const Repeats calls(call, algorithm, repeats);
  check(cudaGraphUpload(calls.graph, call.stream), "timing a product");
  if (call.run(algorithm) != CUBLAS_STATUS_SUCCESS) return kNever;
  Event begin, end;
  for (int i = 0; i < before; ++i) calls.run(call.stream);
  begin.record(call.stream);
  calls.run(call.stream);
  end.record(call.stream);
  check(cudaEventSynchronize(end.event), "timing a product");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin.event, end.event), "timing a product");
  return double(ms) * 1000 / repeats;
}

/// Microseconds of each algorithm; kNever of those that fail or are far behind.
std::vector<double> measure(const Call& call, const Algorithms& algorithms) {
  std::vector<double> once;
  for (const auto& a : algorithms) once.push_back(turn(call, a, 1));
  double best = *std::min_element(once.begin(), once.end());
  check(best < kNever, "gemm: every algorithm that cuBLASLt named for this product fails");
  int repeats = int(std::clamp(kTurn / best, 1.0, 20.0));
  std::vector<std::vector<double>> times(algorithms.size());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < algorithms.size(); ++i)
      if (once[i] < kFarBehind * best) times[i].push_back(turn(call, algorithms[i], repeats));
  std::vector<double> medians;
  for (auto& t : times) {
    std::sort(t.begin(), t.end());
    medians.push_back(t.empty() ? kNever : t[t.size() / 2]);
  }
  if (medians[0] == kNever) medians[0] = once[0];
  return medians;
}

/// Of large products: the times of those close to the best, at the clock that each settles at.
void measure_settled(const Call& call, const Algorithms& algorithms, std::vector<double>& times) {
  const double best = *std::min_element(times.begin(), times.end());
  if (best < kLarge) return;
  const int repeats = int(kLongTurn / best), before = int(std::ceil(kSettle / kLongTurn));
  std::vector<std::vector<double>> settled(algorithms.size());
  for (int round = 0; round < kLongRounds; ++round)
    for (size_t i = 0; i < algorithms.size(); ++i)
      if (times[i] < kClose * best || i == 0)
        settled[i].push_back(turn(call, algorithms[i], repeats, before));
  for (size_t i = 0; i < algorithms.size(); ++i) {
    std::sort(settled[i].begin(), settled[i].end());
    times[i] = settled[i].empty() ? kNever : settled[i][settled[i].size() / 2];
  }
}

/// Memory like that of C, aligned like it.
struct Scratch {
  Tensor memory;
  void* data;
  Scratch(const Gemm& g, Device device)
      : memory(empty(
            {((g.batch - 1) * g.stride_c + (g.m - 1) * g.ldc + g.n) * size_of(g.type_c) + 256},
            DType::u8, device)),
        data(reinterpret_cast<void*>((uintptr_t(memory.raw()) + 255) / 256 * 256)) {}
};

GemmChoice time_all(Call call, Device device, const Algorithms& algorithms) {
  std::optional<Scratch> scratch;
  if (call.g.beta != 0) call.d = scratch.emplace(call.g, device).data;
  std::vector<double> times = measure(call, algorithms);
  measure_settled(call, algorithms, times);
  size_t best = size_t(std::min_element(times.begin(), times.end()) - times.begin());
  if (times[best] > kWorthwhile * times[0]) best = 0;
  GemmChoice choice{.time = times[best], .time_of_first = times[0]};
  static_assert(sizeof choice.algorithm == sizeof(cublasLtMatmulAlgo_t));
  memcpy(&choice.algorithm, &algorithms[best], sizeof choice.algorithm);
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
