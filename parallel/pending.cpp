#include "parallel/pending.h"

#include "core/scope.h"

namespace gradus::parallel {

void Pending::join() {
  if (const Mark done = std::exchange(done_, Mark())) {
    const Scope scope("join");  // in a trace: how long the stream waits
    done.join();
  }
  used_.clear();
}

// An Error is on its way where joining fails here; the next wait for the device says it again.
Pending::~Pending() {
  try {
    join();
  } catch (const Error&) {
  }
}

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending before(std::exchange(used_, std::move(other.used_)),
                 std::exchange(done_, std::move(other.done_)));
  return *this;
}

}  // namespace gradus::parallel
