// Ranks as processes: tests/mpi_test.sh starts these, and those of the communicator, under mpirun.
#include "parallel/mpi.h"

#include <chrono>
#include <csignal>
#include <thread>

#include "ops/ops.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

TEST(Mpi, AProgramWithoutMpiSaysHowToGetIt) {
#if defined(GRADUS_MPI)
  GTEST_SKIP() << "built with MPI";
#endif
  expect_error([] { mpi_world(); }, {"built without", "libopenmpi-dev", "MPI=1"});
  expect_error([] { run_processes([](Communicator) {}); }, {"built without"});
}

// Each ends all processes, so the script starts them one by one and reads what they print.
class MpiEnds : public testing::Test {
 protected:
  void SetUp() override {
    if (!launched_by_mpi()) GTEST_SKIP() << "tests/mpi_test.sh starts it under mpirun";
  }
};

TEST_F(MpiEnds, AnException) {
  run_processes([](Communicator world) {
    if (world.rank() == 1) throw Error("no more");
    world.all_reduce(zeros({3}));
  });
}

TEST_F(MpiEnds, AKilledProcess) {
  run_processes([](Communicator world) {
    world.barrier();
    if (world.rank() == 1) (void)std::raise(SIGKILL);
    world.all_reduce(zeros({3}));
  });
}

TEST_F(MpiEnds, OneThatDoesNotCome) {
  run_processes(
      [](Communicator world) {
        if (world.rank() == 0) world.all_reduce(zeros({3}));
        world.receive_into(zeros({1}), 0, 4);
      },
      {{.timeout = 1}, 1 << 20});
}

TEST_F(MpiEnds, BothSendFirstAndStrictly) {
  run_processes(
      [](Communicator world) {
        const Tensor x = zeros({5});
        if (world.rank() > 1) return;
        world.send(x, 1 - world.rank());
        world.receive_into(x, 1 - world.rank());
      },
      {{.timeout = 1, .strict_send = true}, 1 << 20});
}

// The same where tensors are on GPUs.

TEST_F(MpiEnds, AGpuProcessThatIsKilled) {
  run_processes([](Communicator world) {
    const Device device = gpu_of(world);
    const Tensor x = full({1000}, 1, DType::f32, device);
    world.all_reduce_into(x);
    synchronize(device);
    if (world.rank() == 1) (void)std::raise(SIGKILL);
    world.all_reduce_into(x);
    if (world.rank() == 0) synchronize(device);
    world.barrier();  // where the others wait when there is no answer
  });
}

TEST_F(MpiEnds, AGpuProcessThatDoesNotCome) {
  run_processes(
      [](Communicator world) {
        const Device device = gpu_of(world);
        const Tensor x = full({1000}, 1, DType::f32, device);
        world.all_reduce_into(x);
        synchronize(device);
        if (world.rank() == 0) world.all_reduce_into(x), synchronize(device);
        std::this_thread::sleep_for(std::chrono::seconds(20));
      },
      {{.timeout = 5}, 1 << 20});
}

}  // namespace
}  // namespace gradus::parallel
