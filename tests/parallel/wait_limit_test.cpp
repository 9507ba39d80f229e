#include "parallel/wait_limit.h"

#include <chrono>
#include <thread>

#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

// Rank 1 comes to the barrier half a second late.
void meet(const Communicator& world) {
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  world.barrier();
}

TEST(WaitLimit, IsThatOfTheInnermostOrOfTheGroup) {
  EXPECT_EQ(wait_limit(20), 20);
  {
    const WaitLimit outer(30);
    EXPECT_EQ(wait_limit(20), 30);
    {
      const WaitLimit inner(0);
      EXPECT_EQ(wait_limit(20), 20);
    }
    EXPECT_EQ(wait_limit(20), 30);
    std::thread([] { EXPECT_EQ(wait_limit(20), 20); }).join();
  }
  EXPECT_EQ(wait_limit(20), 20);
}

TEST(WaitLimit, ShortensAndLengthensWaits) {
  expect_error(
      [] {
        run_ranks(2, [](const Communicator& world) {
          const WaitLimit limit(0.1);
          meet(world);
        });
      },
      {"rank 0 has waited for 0.1 s in barrier", "not there: rank 1"});
  run_ranks(2,
            [](const Communicator& world) {
              const WaitLimit limit(20);
              meet(world);
            },
            {.timeout = 0.1});
}

}  // namespace
}  // namespace gradus::parallel
