#pragma once
// How long the work of a device takes, without waiting for it:
//
//   TimeMark begun(device);
//   …                                 // work is asked for
//   TimeMark done(device);
//   …                                 // later on
//   done.wait();
//   const double ms = done.since(begun);
#include <memory>

#include "core/device.h"

namespace gradus {

/// The time at which a GPU comes to a point of a stream; on the CPU, where all work is done at once, the
/// time at which it is made.
class TimeMark {
 public:
  /// Behind what this thread has asked of `device` so far, on the stream that it is at.
  explicit TimeMark(Device device);
  /// Until the device has come to it.
  void wait() const;
  /// Milliseconds from `earlier`, of the same device and on any stream of it, to this one; negative if it is
  /// not earlier. Error unless the device has come to both.
  double since(const TimeMark& earlier) const;

 private:
  std::shared_ptr<void> event_;  // on a GPU
  double ms_ = 0;                // on the CPU
};

}  // namespace gradus
