#pragma once
// What this thread is doing.
//
//   Scope scope("linear", Phase::forward);      // until the end of the block
//
// Memory that is allocated meanwhile carries the name, so that an out-of-memory error can say who
// holds what; and while a Trace records, the time is taken (core/trace.h). apply() and the backward
// sweep open a scope for each op. What runs inside a backward is backward, too: an op whose backward
// is written in ops, and a forward that is computed again. Without a Trace a scope costs two moves and
// one branch.
#include <cstdint>
#include <string_view>

namespace gradus {

class Trace;

enum class Phase : uint8_t { other, forward, backward };

struct Activity {
  std::string_view name;  // of a literal: it is kept
  Phase phase = Phase::other;
};

namespace detail {
inline constinit thread_local Activity activity{};
inline constinit thread_local Trace* trace = nullptr;
void begin_span(Trace& trace, const Activity& activity);
void end_span(Trace& trace);
}  // namespace detail

class Scope {
 public:
  explicit Scope(std::string_view name, Phase phase = Phase::other)
      : before_(detail::activity), trace_(detail::trace) {
    detail::activity = {name, before_.phase == Phase::backward ? Phase::backward : phase};
    if (trace_) [[unlikely]]
      detail::begin_span(*trace_, detail::activity);
  }
  ~Scope() {
    if (trace_) [[unlikely]]
      detail::end_span(*trace_);
    detail::activity = before_;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Activity before_;
  Trace* trace_;
};

}  // namespace gradus
