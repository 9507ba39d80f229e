#pragma once
// Work beside the work of a thread's stream.
//
//   stream   ─── … ───┬─────── dW = dyᵀ x ───────┬─── …        Mark summed;
//                     │ fork                     │ join         { Aside aside(device);
//   aside             └─────── Σ_ranks dx ───────┘                Σ_ranks dx;  summed = Mark(device); }
//                                                               dW = dyᵀ x;
//                                                               summed.join();      // then use dx
//
// It is meant for communication, which uses few of a GPU's multiprocessors: its stream goes before the other
// where both have work ready. Products are not computed aside (their workspace belongs to the stream).
//
// Note [memory aside]
// A block freed by a thread is given out again at once, because the order of the stream guarantees that
// its old readers are done. What is read or written aside is outside of that order. So
//   * tensors from before that are used aside are to be held until the join (parallel/pending.h does);
//   * what is allocated aside comes from a pool of its own and goes back there: its next user is aside,
//     too, and every Aside begins after all that the stream was given before.
#include <memory>

#include "core/device.h"
#include "core/scope.h"

namespace gradus {

/// A point in the work of a stream. On the CPU, where all work is done at once, it is nothing.
class Mark {
 public:
  Mark() = default;  // long ago
  /// Behind what this thread has asked of `device` so far, on the stream that it is at.
  explicit Mark(Device device);
  /// What this thread asks of the device from here on waits for it; the host does not.
  void join() const;
  explicit operator bool() const { return event_ != nullptr; }

 private:
  Device device_{};
  std::shared_ptr<void> event_;
};

/// While one lives, this thread's work on `device` goes to a second stream, behind what the first has;
/// a Trace shows the first. Nothing on the CPU. Error inside another, and while a graph is captured.
class Aside {
 public:
  explicit Aside(Device device);
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  Device device_;
  Trace* trace_ = nullptr;
};

namespace cuda {
/// Whether this thread's stream on `device` is, at present, the one aside.
bool is_aside(Device device);
}  // namespace cuda

}  // namespace gradus
