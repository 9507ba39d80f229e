#pragma once
// Where the time of a training step goes: traced steps, summed by kind of kernel.
//
//   profile of 3 steps          ms    floor    ops
//   GEMM                     66.24    61.66    180
//   attention forward         3.56     1.57     12
//   …
//   gaps                      0.33                     the step less all its ops
//   step                     92.26    76.47            outside of the profile: 91.80 ms
#include <functional>
#include <memory>
#include <string>

#include "core/trace.h"
#include "train/kernel_class.h"

namespace gradus::train {

struct Profile {
  int steps = 0;
  ClassTimes ms{};  // of one step
  std::array<int64_t, kKernelClasses> ops{};
  double traced_ms = 0;              // their sum: a step, with the events of the trace
  double plain_ms = 0;               // a step without
  std::optional<ClassTimes> floor;   // where the device was measured
  std::vector<Trace::Total> totals;  // by op, over all steps
};

/// Runs `step` once to warm up, once timed, then `steps` times traced. Each call must enqueue the same
/// work. `chrome`: where to write the trace of those, empty: nowhere.
Profile profile_steps(Device device, const std::function<void()>& step, int steps,
                      const StepSize& size, const std::string& chrome = {});

/// The table above.
std::string table_of(const Profile& profile);

}  // namespace gradus::train
