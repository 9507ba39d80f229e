#include "parallel/mpi_process.h"

#if defined(GRADUS_MPI)

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <list>
#include <mutex>
#include <thread>

namespace gradus::parallel {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct Outgoing {
  MpiRequests requests;
  std::shared_ptr<void> memory;
  double seconds;
  std::string text;
};

std::list<Outgoing>& outgoing() {
  static auto* list = new std::list<Outgoing>;  // read when the program ends
  return *list;
}

bool ending = false;

/// What a watchdog has found, which is another thread.
struct {
  std::mutex mutex;
  std::string text;
} verdict;

std::string why_in_vain() {
  const std::lock_guard lock(verdict.mutex);
  return verdict.text;
}

bool done(MpiRequests& requests) {
  int all = 0;
  check_mpi(MPI_Testall(int(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE),
            "asking MPI for progress");
  return all != 0;
}

void forget_what_has_left() {
  outgoing().remove_if([](Outgoing& o) { return done(o.requests); });
}

std::vector<int> unfinished(const MpiRequests& requests) {
  std::vector<int> indices;
  for (size_t i = 0; i < requests.size(); ++i) {
    int flag = 1;
    if (requests[i] != MPI_REQUEST_NULL)
      (void)MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE);
    if (!flag) indices.push_back(int(i));
  }
  return indices;
}

void end_mpi() {
  if (ending) return;
  for (Outgoing& o : outgoing()) finish(o.requests, o.seconds, [&](auto&) { return o.text; });
  (void)MPI_Finalize();
}

}  // namespace

void check_mpi(int status, Message doing) {
  if (status == MPI_SUCCESS) return;
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  (void)MPI_Error_string(status, words, &length);
  fail(doing, ": MPI says: ", words);
}

void start_mpi() {
  int running = 0;
  check_mpi(MPI_Initialized(&running), "asking whether MPI runs");
  if (running) return;
  int threads = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &threads), "starting MPI");
  check(threads >= MPI_THREAD_FUNNELED, "this MPI does not allow programs with threads");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "setting up MPI");
  std::atexit(end_mpi);
}

void end_all_processes(const std::string& text) {
  int rank = 0;
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::cerr << "rank " + std::to_string(rank) + ": " + text + "\n" << std::flush;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // others may have something to say
  ending = true;
  (void)MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void end_waits(const std::string& text) {
  const std::lock_guard lock(verdict.mutex);
  verdict.text = text;
}

void finish(MpiRequests& requests, double seconds,
            const std::function<std::string(const std::vector<int>&)>& text) {
  const Clock::time_point end = after(seconds);
  for (int polls = 0; !done(requests); ++polls) {
    if (polls < 1000) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (const std::string why = why_in_vain(); !why.empty()) end_all_processes(why);
    if (Clock::now() > end) end_all_processes(text(unfinished(requests)));
  }
}

void finish_later(MpiRequests requests, std::shared_ptr<void> memory, double seconds,
                  std::string text) {
  forget_what_has_left();
  outgoing().push_back({std::move(requests), std::move(memory), seconds, std::move(text)});
}

}  // namespace gradus::parallel

#endif
