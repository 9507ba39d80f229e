#pragma once
// MPI in this process: its beginning and end, and waits that end when the time is up. Only in programs that
// are built with MPI.
#if defined(GRADUS_MPI)
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"

namespace gradus::parallel {

/// Throws Error with MPI's words unless `status` is MPI_SUCCESS.
void check_mpi(int status, Message doing);

/// Starts MPI unless it runs. It ends when the program does, after what was sent has left.
void start_mpi();

/// Prints "rank k: text" and ends all processes.
[[noreturn]] void end_all_processes(const std::string& text);

using MpiRequests = std::vector<MPI_Request>;

/// From any thread: what this process waits for will not come. The wait that it is in, or begins, ends all
/// processes with `text`.
void end_waits(const std::string& text);

/// Lets MPI work until all requests are done; after `seconds`, all processes are ended with
/// text(unfinished), given the indices of those that are not.
void finish(MpiRequests& requests, double seconds,
            const std::function<std::string(const std::vector<int>& unfinished)>& text);

/// Keeps `memory` alive until the requests are done: a send that nobody waits for.
void finish_later(MpiRequests requests, std::shared_ptr<void> memory, double seconds,
                  std::string text);

}  // namespace gradus::parallel
#endif
