#include "train/machine.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "core/cuda.h"
#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

TEST(Machine, ADeviceIsChosenByItsName) {
  EXPECT_EQ(choose_device("cpu"), kCpu);
  const bool gpu = cuda_device_count() > 0;
  EXPECT_EQ(choose_device("auto"), gpu ? kCuda : kCpu);
  if (gpu)
    EXPECT_EQ(choose_device("cuda"), kCuda);
  else
    EXPECT_TRUE(holds(error_of([] { choose_device("cuda"); }), {"cuda:0"}));
  EXPECT_TRUE(holds(error_of([] { choose_device("cuda:99"); }), {"cuda:99"}));
  for (const char* odd : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:1000", ""}) {
    const std::string error = error_of([&] { choose_device(odd); });
    EXPECT_TRUE(holds(error, {"auto, cpu, cuda or cuda:N", odd})) << error;
  }
}

TEST(Machine, ThreadsAreThoseAskedForElseOneForEachCore) {
  const int before = omp_get_max_threads();
  use_threads(3);
  EXPECT_EQ(omp_get_max_threads(), 3);
  EXPECT_TRUE(holds(machine_name(kCpu), {", 3 threads"}));
  use_threads(0);
  EXPECT_EQ(omp_get_max_threads(), omp_get_num_procs());
  EXPECT_TRUE(holds(error_of([] { use_threads(-2); }), {"--threads", "-2"}));
  omp_set_num_threads(before);
}

TEST(Machine, T3_ThePeakOfACpuIsNotKnown) {
  EXPECT_FALSE(machine_peak(kCpu, DType::f32).has_value());
  EXPECT_GT(memory_in_use(kCpu), 0);
  EXPECT_NO_THROW(check_dtype(kCpu, DType::bf16));
}

}  // namespace
}  // namespace gradus::train
