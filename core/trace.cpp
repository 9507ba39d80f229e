#include "core/trace.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

#include "core/cuda.h"

#if defined(GRADUS_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define GRADUS_NVTX
#endif

namespace gradus {
namespace {

void push_range([[maybe_unused]] const Activity& a) {
#if defined(GRADUS_NVTX)
  nvtxRangePushA((std::string(a.name) + (a.phase == Phase::backward ? " backward" : "")).c_str());
#endif
}
void pop_range() {
#if defined(GRADUS_NVTX)
  nvtxRangePop();
#endif
}

/// A point in a thread's work: when the host was there, and an event for when the device was.
struct Mark {
  double host = 0;
#if defined(GRADUS_CUDA)
  cudaEvent_t event = nullptr;
#endif
};

struct OpenSpan {
  Activity activity;
  int parent;
  size_t first, last = 0;  // marks
};

}  // namespace

struct Trace::Recorder {
  explicit Recorder(Device d) : device(d) { mark(); }
  ~Recorder() {
#if defined(GRADUS_CUDA)
    for (Mark& m : marks)
      if (m.event) (void)cudaEventDestroy(m.event);
#endif
  }

  /// Throws nothing, since a Scope that an exception leaves comes here, too. What failed is found by
  /// whoever reads the mark.
  size_t mark() {
    using namespace std::chrono;
    Mark m;
    m.host = duration<double, std::milli>(steady_clock::now() - began).count();
#if defined(GRADUS_CUDA)
    if (device.is_cuda() && cudaEventCreate(&m.event) == cudaSuccess)
      (void)cudaEventRecord(m.event, cuda::stream(device));
#endif
    marks.push_back(m);
    return marks.size() - 1;
  }

  /// When the device came to a mark, in ms since the first one.
  double time_of(size_t i) const {
#if defined(GRADUS_CUDA)
    if (device.is_cuda()) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, marks[0].event, marks[i].event), "reading a trace");
      return ms;
    }
#endif
    return marks[i].host;
  }

  const Device device;
  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::vector<Mark> marks;
  std::vector<OpenSpan> spans;
  int innermost = -1;
};

void detail::begin_span(Trace& trace, const Activity& activity) {
  Trace::Recorder& r = *trace.recorder_;
  push_range(activity);
  r.spans.push_back({activity, r.innermost, r.mark()});
  r.innermost = int(r.spans.size()) - 1;
}

void detail::end_span(Trace& trace) {
  Trace::Recorder& r = *trace.recorder_;
  OpenSpan& span = r.spans[size_t(r.innermost)];
  span.last = r.mark();
  r.innermost = span.parent;
  pop_range();
}

Trace::Trace(Device device)
    : recorder_(std::make_unique<Recorder>(device)), before_(std::exchange(detail::trace, this)) {}
Trace::~Trace() { detail::trace = before_; }

std::vector<Trace::Span> Trace::spans() const {
  const Recorder& r = *recorder_;
  synchronize(r.device);
  std::vector<Span> list;
  for (const OpenSpan& s : r.spans) {
    const size_t last = s.last > 0 ? s.last : s.first;
    list.push_back({s.activity, s.parent, r.marks[s.first].host, r.marks[last].host,
                    r.time_of(s.first), r.time_of(last)});
    const double duration = list.back().end - list.back().start;
    list.back().self = duration;
    if (s.parent >= 0 && r.spans[size_t(s.parent)].last > 0)
      list[size_t(s.parent)].self -= duration;
  }
  return list;
}

std::vector<Trace::Total> Trace::totals() const {
  std::map<std::pair<std::string_view, Phase>, Total> by_name;
  for (const Span& span : spans()) {
    Total& total = by_name[{span.activity.name, span.activity.phase}];
    total.activity = span.activity;
    total.self += span.self;
    ++total.count;
  }
  std::vector<Total> list;
  for (const auto& [name, total] : by_name) list.push_back(total);
  std::stable_sort(list.begin(), list.end(),
                   [](const Total& a, const Total& b) { return a.self > b.self; });
  return list;
}

void Trace::write_chrome(const std::string& path) const {
  std::FILE* file = std::fopen(path.c_str(), "w");
  check(file != nullptr, "the trace ", path, " cannot be written");
  const char* before = "";
  const auto event = [&](const Span& s, const char* row, double start, double end) {
    std::fprintf(file, "%s\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":\"gradus\",",
                 before, std::string(s.activity.name).c_str(),
                 s.activity.phase == Phase::backward ? "backward" : "forward");
    std::fprintf(file, "\"tid\":\"%s\",\"ts\":%.3f,\"dur\":%.3f}", row, 1e3 * start,
                 1e3 * (end - start));
    before = ",";
  };
  std::fputs("{\"traceEvents\":[", file);
  for (const Span& s : spans()) {
    event(s, "host", s.host_start, s.host_end);
    if (recorder_->device.is_cuda()) event(s, "device", s.start, s.end);
  }
  std::fputs("\n]}\n", file);
  check(std::fclose(file) == 0, "the trace ", path, " is not complete: the disk is full");
}

}  // namespace gradus
