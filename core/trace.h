#pragma once
// How long things take: while a Trace lives, each Scope of its thread becomes a span.
//
//   Trace trace(device);
//   train_step(…);                           // apply() and backward open a scope for each op
//   for (const Trace::Total& t : trace.totals()) …
//   trace.write_chrome("trace.json");        // for chrome://tracing or ui.perfetto.dev
//
//   host    ──┤ linear ├┤ gelu ├──┤ linear ├─────────────
//   device  ───────┤  linear    ├┤gelu├┤  linear    ├────     an event before and after each op
//                                                             says when the stream got there
//
// On a GPU a span runs from the event before the op's kernels to the one after them. If the host is
// slower than the device, the device waits inside spans and they are longer than the kernels: begin
// with a delay() of the device, so that all is queued before the first kernel runs. The events cost
// the device a microsecond or two each. Spans nest; a total counts what is not in an inner span.
// Where NVTX is there, the scopes are also its ranges, for Nsight. A scope that began while a Trace
// lived must end before the Trace does.
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/scope.h"

namespace gradus {

class Trace {
 public:
  explicit Trace(Device device);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  struct Span {
    Activity activity;
    int parent = -1;                      // the span around it
    double host_start = 0, host_end = 0;  // ms since the trace began
    double start = 0, end = 0, self = 0;  // on the device; `self`: without the inner spans
  };
  /// All spans, in the order in which they began; one that has not ended takes no time yet. Waits for
  /// the device.
  std::vector<Span> spans() const;

  /// Of all spans with the same name and phase.
  struct Total {
    Activity activity;
    int64_t count = 0;
    double self = 0;  // ms
  };
  /// Largest first.
  std::vector<Total> totals() const;

  /// Spans as a JSON file in the "trace event" format, host and device as two rows.
  void write_chrome(const std::string& path) const;

 private:
  friend void detail::begin_span(Trace&, const Activity&);
  friend void detail::end_span(Trace&);
  struct Recorder;
  std::unique_ptr<Recorder> recorder_;
  Trace* before_;
};

}  // namespace gradus
