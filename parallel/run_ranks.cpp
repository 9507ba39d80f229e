#include "parallel/run_ranks.h"

#include <omp.h>

#include <algorithm>
#include <thread>

#include "parallel/thread_group.h"
#include "parallel/thread_mail.h"

namespace gradus::parallel {
namespace {

void run_rank(ThreadWorld& world, std::shared_ptr<Group> end, int loop_threads,
              const std::function<void(Communicator)>& body) {
  const int rank = end->rank();
  omp_set_num_threads(loop_threads);  // of this thread's loops: the ranks share the cores
  try {
    body(Communicator(std::move(end)));
    world.returned(rank);
  } catch (...) {
    world.failed(rank, std::current_exception());
  }
}

}  // namespace

void run_ranks(int n, const std::function<void(Communicator world)>& body, RankOptions options) {
  check(n >= 1, "run_ranks: at least one rank is needed, got ", n);
  check(options.timeout > 0, "run_ranks: a timeout is positive, got ", options.timeout, " s");
  const auto world = std::make_shared<ThreadWorld>(n, options);
  auto ends = ThreadGroup::make_world(world, n);
  if (n == 1) return body(Communicator(ends[0]));  // nobody to run beside
  const int loop_threads = std::max(1, omp_get_max_threads() / n);
  std::vector<std::thread> threads;
  try {
    for (auto& end : ends)
      threads.emplace_back(
          [&, end = std::move(end)] { run_rank(*world, end, loop_threads, body); });
  } catch (...) {  // no more threads: those that run wait for ranks that will not come
    world->failed(int(threads.size()), std::current_exception());
  }
  for (std::thread& t : threads) t.join();
  world->rethrow();
  check_mail_was_read(*world);
}

}  // namespace gradus::parallel
