#include "parallel/nccl_watchdog.h"

#if defined(GRADUS_NCCL)
#include <exception>
#include <sstream>

#include "core/cuda.h"
#include "parallel/wait_limit.h"

namespace gradus::parallel {
namespace {

using namespace std::chrono_literals;

bool is_done(cudaEvent_t event) { return cudaEventQuery(event) != cudaErrorNotReady; }

}  // namespace

NcclWatchdog::NcclWatchdog(ncclComm_t comm, Device device, NcclWatch watch)
    : comm_(comm),
      device_(device),
      watch_(std::move(watch)),
      owner_(cuda::device_failure(device)),
      thread_([this] { this->watch(); }) {}

NcclWatchdog::~NcclWatchdog() {
  const bool whole = std::uncaught_exceptions() == 0 && drain();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (comm_) (void)(whole ? ncclCommDestroy(comm_) : ncclCommAbort(comm_));
  for (std::deque<Flight>* list : {&flights_, &free_})
    for (const Flight& f : *list) (void)cudaEventDestroy(f.begun), (void)cudaEventDestroy(f.done);
}

/// Waits for what is under way; false when it was aborted.
bool NcclWatchdog::drain() {
  for (;; std::this_thread::sleep_for(100us)) {
    std::lock_guard lock(mutex_);
    forget_what_is_done();
    if (!failure_.empty()) return false;
    if (flights_.empty()) return true;
  }
}

NcclWatchdog::Flight NcclWatchdog::take_flight(const Call& call) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) {
    owner_.rethrow();
    throw Error(failure_);
  }
  if (flights_.size() >= 64) forget_what_is_done();
  Flight flight;
  if (!free_.empty()) {
    flight = free_.back();
    free_.pop_back();
  } else {
    for (cudaEvent_t* event : {&flight.begun, &flight.done})
      check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "creating an event");
  }
  flight.call = call;
  flight.limit = wait_limit(watch_.timeout);
  flight.number = ++calls_;
  return flight;
}

void NcclWatchdog::forget_what_is_done() {
  std::erase_if(flights_, [&](const Flight& flight) {
    const bool done = is_done(flight.done);
    if (done) free_.push_back(flight);
    return done;
  });
}

void NcclWatchdog::run(const Call& call,
                       const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& enqueue) {
  const cudaStream_t stream = cuda::stream(device_);
  const Flight flight = take_flight(call);
  std::lock_guard calling(calling_);
  check(comm_ != nullptr, "a NCCL communicator was aborted: ", watch_.who);
  check(cudaEventRecord(flight.begun, stream), "recording an event");
  check(enqueue(comm_, stream), "", watch_.who, ", ", call);
  check(cudaEventRecord(flight.done, stream), "recording an event");
  std::lock_guard lock(mutex_);
  flights_.push_back(flight);
}

void NcclWatchdog::watch() {
  if (cudaSetDevice(device_.index) != cudaSuccess) return;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, 100ms, [&] { return stop_; })) {
    const std::string why = trouble();
    if (why.empty()) continue;
    failure_ = watch_.who + ": " + why;
    lock.unlock();
    return abort(failure_);
  }
}

/// Why this cannot go on; empty while it can.
std::string NcclWatchdog::trouble() {
  std::ostringstream out;
  ncclResult_t status = ncclSuccess;
  (void)ncclCommGetAsyncError(comm_, &status);
  if (status != ncclSuccess && status != ncclInProgress) {
    out << "NCCL says " << ncclGetErrorString(status) << "; " << ncclGetLastError(comm_);
    return out.str();
  }
  if (std::string host = watch_.host ? watch_.host() : ""; !host.empty()) return host;

  forget_what_is_done();
  const Flight* first = nullptr;  // that the device is at
  for (const Flight& flight : flights_)
    if (!first && is_done(flight.begun)) first = &flight;
  if (!first) return {};
  const auto now = std::chrono::steady_clock::now();
  if (first->number != running_) running_ = first->number, running_since_ = now;
  if (now - running_since_ < std::chrono::duration<double>(first->limit)) return {};
  out << first->call << ", call " << running_ << ", runs for " << first->limit
      << " s on the device: another rank has died, or does other work";
  return out.str();
}

// The thread that owns this end may sit inside of NCCL, waiting for a connection: NCCL then wants to be aborted
// from here, and its call returns with an error.
void NcclWatchdog::abort(const std::string& why) {
  owner_.set(why);
  watch_.tell(why);
  const bool idle = calling_.try_lock_for(500ms);
  (void)ncclCommAbort(std::exchange(comm_, nullptr));
  if (idle) calling_.unlock();
}

}  // namespace gradus::parallel
#endif
