#include "parallel/mpi.h"

#include <cstdlib>
#include <numeric>

#include "parallel/mpi_group.h"

namespace gradus::parallel {
namespace {

/// The number that a launcher has left in a variable, or 0.
int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

/// How many processes were started together: by Open MPI, MPICH and its relatives, Slurm.
int launched() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const int n = number_of(variable); n > 0) return n;
  return 0;
}

}  // namespace

bool launched_by_mpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_SIZE") || launched() > 1;
}

#if defined(GRADUS_MPI)

Communicator mpi_world(ProcessOptions options) {
  check(options.timeout > 0, "a timeout is positive, got ", options.timeout, " s");
  start_mpi();
  int rank = 0, size = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "asking for the rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "asking for the number of ranks");
  check(launched() <= 1 || size > 1, "the launcher started ", launched(),
        " processes, but MPI sees one: start them with the mpirun of the MPI that this program was "
        "built with, or with srun --mpi=pmix");
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Communicator(std::make_shared<MpiGroup>("world", rank, ranks, MPI_COMM_WORLD, options));
}

void run_processes(const std::function<void(Communicator world)>& body, ProcessOptions options) {
  const Communicator world = mpi_world(options);
  if (world.size() == 1) return body(world);
  try {
    body(world);
  } catch (const std::exception& e) {
    end_all_processes(e.what());
  } catch (...) {
    end_all_processes("an exception that says nothing");
  }
}

#else

Communicator mpi_world(ProcessOptions) {
  fail(
      "ranks as processes need MPI, and this program is built without: install libopenmpi-dev, "
      "then build with MPI=1");
}

void run_processes(const std::function<void(Communicator world)>&, ProcessOptions options) {
  mpi_world(options);
}

#endif

}  // namespace gradus::parallel
