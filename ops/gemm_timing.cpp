// Timing algorithms against each other.
//
// The clock of a GPU drifts by more than algorithms differ. So all take turns: once around, after which the
// best few stay, and these kRounds times around; the median of each counts. A turn starts with a product that
// is not timed, during which the others queue up, so that the host's time is not measured.
//
// Large products draw more power than a GPU is given, and it lowers its clock until they do not. Which
// algorithm is the fastest then depends on how much energy it takes. So of large products the best run once
// more, each for as long as it takes the clock to settle, and only then against time.
//
// A turn is a CUDA graph. For some algorithms cuBLASLt clears counters first, and there that costs more than
// in a stream: kernels that follow each other start without a pause, what is not a kernel lies between.
#include "ops/gemm_timing.h"

#if defined(GRADUS_CUDA)
#include <algorithm>
#include <cstring>
#include <limits>

#include "autograd/tensor.h"
#include "ops/gemm_tuning.h"

namespace gradus::lt {
namespace {

constexpr int kNamed = 16, kFinalists = 10, kRounds = 9;
constexpr double kWorthwhile = 0.99;  // of the first one's time: else that stays
constexpr double kTurn = 800;         // microseconds
constexpr double kLarge = 100;        // microseconds from which on a product is a large one
constexpr int kLast = 5, kLongRounds = 3;
constexpr double kLongTurn = 40000;  // microseconds: before time is taken, and again while it is
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
  cudaGraphExec_t graph = nullptr;  // null: this algorithm cannot be captured
  Repeats(const Call& call, const cublasLtMatmulAlgo_t& algorithm, int count) {
    cudaGraph_t calls = nullptr;
    check(cudaStreamBeginCapture(call.stream, cudaStreamCaptureModeThreadLocal),
          "timing a product");
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; ++i) status = call.run(algorithm);
    cudaError_t captured = cudaStreamEndCapture(call.stream, &calls);
    if (captured == cudaSuccess && status == CUBLAS_STATUS_SUCCESS)
      captured = cudaGraphInstantiate(&graph, calls, 0);
    if (calls) (void)cudaGraphDestroy(calls);
    if (captured != cudaSuccess) (void)cudaGetLastError();  // or the next call would report it
  }
  ~Repeats() {
    if (graph) (void)cudaGraphExecDestroy(graph);
  }
  Repeats(const Repeats&) = delete;
  void run(cudaStream_t stream) const { check(cudaGraphLaunch(graph, stream), "timing a product"); }
};

/// Microseconds of a product, or kNever where it cannot be run so. `settled`: after as long a turn before.
double turn(const Call& call, const cublasLtMatmulAlgo_t& algorithm, int repeats,
            bool settled = false) {
  if (call.run(algorithm) != CUBLAS_STATUS_SUCCESS) return kNever;
  const Repeats calls(call, algorithm, repeats);
  if (!calls.graph) return kNever;
  check(cudaGraphUpload(calls.graph, call.stream), "timing a product");
  if (call.run(algorithm) != CUBLAS_STATUS_SUCCESS) return kNever;
  Event begin, end;
  if (settled) calls.run(call.stream);
  begin.record(call.stream);
  calls.run(call.stream);
  end.record(call.stream);
  check(cudaEventSynchronize(end.event), "timing a product");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin.event, end.event), "timing a product");
  return double(ms) * 1000 / repeats;
}

/// A turn of how many products fills `time`.
int repeats_in(double time, double product, int most) {
  return int(std::clamp(time / product, 1.0, double(most)));
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// The `count` best of those that can be run, and always the first if that can. Error where none can.
std::vector<size_t> best_of(const std::vector<double>& times, size_t count) {
  std::vector<size_t> order;
  for (size_t i = 0; i < times.size(); ++i)
    if (times[i] < kNever) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return times[i] < times[j]; });
  order.resize(std::min(order.size(), count));
  if (times[0] < kNever && std::find(order.begin(), order.end(), 0) == order.end())
    order.push_back(0);
  check(!order.empty(), "gemm: every algorithm that cuBLASLt named for this product fails");
  return order;
}

/// Microseconds of each algorithm; kNever of those that fail or drop out.
std::vector<double> measure(const Call& call, const Algorithms& algorithms) {
  std::vector<double> times;
  int few = 1;
  for (const auto& a : algorithms) {
    times.push_back(turn(call, a, few));
    if (times.size() == 1) few = repeats_in(kTurn, times[0], 4);
  }
  std::vector<size_t> left = best_of(times, kFinalists);
  // rounds: how often each that is left has a turn of `repeats` products. The others drop out.
  auto compete = [&](int rounds, int repeats, bool settled) {
    std::vector<std::vector<double>> turns(times.size());
    for (int round = 0; round < rounds; ++round)
      for (size_t i : left) turns[i].push_back(turn(call, algorithms[i], repeats, settled));
    for (size_t i = 0; i < times.size(); ++i)
      times[i] = turns[i].empty() ? kNever : median(std::move(turns[i]));
  };
  compete(kRounds, repeats_in(kTurn, times[left[0]], 20), false);
  left = best_of(times, kLast);
  if (times[left[0]] >= kLarge)
    compete(kLongRounds, repeats_in(kLongTurn, times[left[0]], 1000), true);
  return times;
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
  size_t best = size_t(std::min_element(times.begin(), times.end()) - times.begin());
  if (times[best] > kWorthwhile * times[0]) best = 0;
  // Where the first one cannot be run, the best takes its place: kNever is no number in a file.
  GemmChoice choice{.time = times[best],
                    .time_of_first = times[0] < kNever ? times[0] : times[best]};
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
  check(fits(call.handle, call.plan, algorithm), "gemm: the stored algorithm for ", product,
        " is refused by cuBLASLt; delete the file of the GemmTuning, and it is timed again");
  return algorithm;
}

}  // namespace

std::string machine(Device device) {
  return device_name(device) + ", cuBLASLt " + std::to_string(cublasLtGetVersion());
}

Chosen choose(const Call& call, Device device, const std::string& machine,
              const Epilogue& epilogue) {
  auto named = [&](int n) { return algorithms(call.handle, call.plan, call.g, call.x, n); };
  GemmTuning* tuning = GemmTuning::current();
  if (!tuning) return {named(1)[0], true};
  const std::string product = describe(call.g, call.x, epilogue);
  if (auto choice = tuning->find(machine, product)) return {checked(call, *choice, product), true};
  if (is_captured(call.stream)) return {named(1)[0], false};
  GemmChoice fastest = time_all(call, device, with_variants(call.handle, call.plan, named(kNamed)));
  return {algorithm_of(tuning->keep(machine, product, fastest)), true};
}

}  // namespace gradus::lt

#endif
