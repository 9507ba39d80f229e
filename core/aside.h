#pragma once
// Work beside the work of a thread's stream.
//
//   stream   ─── … ───┬────── dX ──────┬─── …        {
//                     │                │               Aside aside(device);
//   aside             └────── dW ──────┘               dW = …              // goes aside
//                     fork            join             aside.leave();      // from here on dX, beside it
//                                                      dX = …
//                                                    }                     // the stream waits for both
//
// Two products that do not fill a GPU to its last multiprocessor fill it better together. What is
// computed aside must not be freed, nor read by the stream, before the join.
#include "core/device.h"

namespace gradus {

/// While one lives and has not left, this thread's work on `device` goes to a second stream, after what
/// the first was given before. On the CPU it does nothing. Not to be nested.
class Aside {
 public:
  explicit Aside(Device device);
  ~Aside();
  Aside(const Aside&) = delete;

  void leave();

 private:
  Device device_;
  bool inside_ = false;
};

/// While one lives, this thread does nothing aside: to measure what that is worth.
class NothingAside {
 public:
  NothingAside();
  ~NothingAside();
  NothingAside(const NothingAside&) = delete;

 private:
  bool before_;
};

namespace cuda {
/// Whether this thread's stream on `device` is, at present, the one aside.
bool is_aside(Device device);
}  // namespace cuda

}  // namespace gradus
