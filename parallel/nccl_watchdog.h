#pragma once
// NCCL has no timeout: when a rank dies, or calls something else, the kernels of the others spin for ever. One
// thread beside each end of a communicator looks, a few times a second, whether
//
//   * NCCL met an error,
//   * another rank of the group failed, as the host's back end knows,
//   * the operation that the device is at runs longer than the timeout,
//
// and then aborts the communicator, which ends the kernels. The thread that owns the end gets an Error from
// its next call and from its next wait for the device; where it waits for another process, that wait ends.
#if defined(GRADUS_NCCL)
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/device_failure.h"
#include "parallel/call.h"
#include "parallel/nccl.h"

namespace gradus::parallel {

struct NcclWatch {
  double timeout = 20;  // seconds that an operation may take on the device, or those of a WaitLimit
  std::string who;      // "rank 1 of dp of ranks 0, 1"
  std::function<std::string()> host;  // why the host's group has failed; empty: it has not
  std::function<void(const std::string&)> tell;  // the host's group, what was found
};

class NcclWatchdog {
 public:
  /// Owned by the thread that makes it.
  NcclWatchdog(ncclComm_t comm, Device device, NcclWatch watch);
  /// Destroys the communicator, after its work; aborts it where that can never end.
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;

  /// Runs enqueue(comm, stream), which puts the operation on this thread's stream, and watches it.
  void run(const Call& call, const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& enqueue);

 private:
  /// From before an operation to behind it, on the device.
  struct Flight {
    cudaEvent_t begun = nullptr, done = nullptr;
    Call call;
    uint64_t number = 0;
    double limit = 0;  // seconds that it may take on the device
  };
  Flight take_flight(const Call& call);
  void forget_what_is_done();
  bool drain();
  void watch();
  std::string trouble();
  void abort(const std::string& why);

  ncclComm_t comm_;
  const Device device_;
  const NcclWatch watch_;
  cuda::DeviceFailure& owner_;

  std::timed_mutex calling_;  // while NCCL is called
  std::mutex mutex_;          // guards what follows
  std::condition_variable wake_;
  std::deque<Flight> flights_;
  std::deque<Flight> free_;
  std::string failure_;
  bool stop_ = false;
  uint64_t calls_ = 0;
  uint64_t running_ = 0;  // the call that was seen to run, and since when
  std::chrono::steady_clock::time_point running_since_{};
  std::thread thread_;  // last: it uses the others
};

}  // namespace gradus::parallel
#endif
