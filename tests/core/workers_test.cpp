#include "core/workers.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/parallel_for.h"

namespace gradus {
namespace {

/// Loops of this thread are cut for so many threads.
struct Threads {
  int before = omp_get_max_threads();
  explicit Threads(int threads) { omp_set_num_threads(threads); }
  ~Threads() { omp_set_num_threads(before); }
};

// How often each of n items was visited, in a loop that is cut as finely as it may be.
std::vector<int> visits(int64_t n) {
  std::vector<int> count(static_cast<size_t>(n));
  parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++count[static_cast<size_t>(i)];
  });
  return count;
}

TEST(Workers, EveryItemIsVisitedOnceForAnyNumberOfThreads) {
  for (int threads : {1, 2, 3, 8}) {
    Threads t(threads);
    for (int64_t n : {0, 1, 2, 3, 7, 8, 9, 1000})
      EXPECT_EQ(visits(n), std::vector<int>(static_cast<size_t>(n), 1)) << threads << ' ' << n;
  }
}

TEST(Workers, ManyShortLoopsInARow) {
  Threads t(4);
  int64_t total = 0;
  for (int round = 0; round < 20000; ++round) {
    int64_t parts[4] = {};
    parallel_for(4, 1, [&](int64_t begin, int64_t) { parts[begin] = begin + round; });
    total += std::accumulate(parts, parts + 4, int64_t(0));
  }
  EXPECT_EQ(total, int64_t(20000) * 6 + 4 * int64_t(20000) * 19999 / 2);
}

TEST(Workers, E7_AnExceptionArrivesAtTheCallerAndTheNextLoopWorks) {
  Threads t(4);
  for (int64_t bad = 0; bad < 4; ++bad) {
    try {
      parallel_for(4, 1, [&](int64_t begin, int64_t) {
        if (begin == bad) throw std::runtime_error("part " + std::to_string(bad));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "part " + std::to_string(bad));
    }
    EXPECT_FALSE(in_loop());
    EXPECT_EQ(visits(100), std::vector<int>(100, 1));
  }
}

TEST(Workers, ALoopInsideALoopIsSerial) {
  Threads t(4);
  std::atomic<int> inner = 0, cuts = 0;
  parallel_for(4, 1, [&](int64_t, int64_t) {
    EXPECT_TRUE(in_loop());
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      ++cuts;
      inner += int(end - begin);
    });
  });
  EXPECT_EQ(inner, 400);
  EXPECT_EQ(cuts, 4);
}

TEST(Workers, RanksThatAreThreadsLoopAtTheSameTime) {
  std::vector<std::thread> ranks;
  std::atomic<int> wrong = 0;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&] {
      Threads t(3);
      for (int round = 0; round < 500; ++round)
        if (visits(10) != std::vector<int>(10, 1)) ++wrong;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Workers, AForkedProcessLoopsWithoutThem) {
  Threads t(3);
  visits(10);  // they exist
  const pid_t child = fork();
  if (child == 0) _exit(visits(1000) == std::vector<int>(1000, 1) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace gradus
