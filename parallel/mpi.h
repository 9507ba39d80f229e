#pragma once
// Ranks as processes, on one machine or many, through MPI.
//
//   int main() {
//     run_processes([](Communicator world) { … });          mpirun -n 4 program
//   }
//
// A program that is built without MPI has these functions too; they say how to get it.
#include <functional>

#include "parallel/run_ranks.h"

namespace gradus::parallel {

/// Whether mpirun, mpiexec or srun has started this process as one of several. Asks their variables only.
bool launched_by_mpi();

struct ProcessOptions : RankOptions {
  int64_t piece =
      64 << 20;  // bytes to or from each rank: more goes in pieces, and needs that much more memory
};

/// All processes that were started together. The first call starts MPI, which ends with the program.
Communicator mpi_world(ProcessOptions options = {});

/// Runs body(world) in this process. What it throws is printed with the rank and ends all processes.
void run_processes(const std::function<void(Communicator world)>& body,
                   ProcessOptions options = {});

}  // namespace gradus::parallel
