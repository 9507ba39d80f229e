#pragma once
// Loops over the cores of one machine. Work is cut into equal ranges; a body must give the same result
// for every cut, so that numbers do not depend on the number of threads.
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/workers.h"

namespace gradus {

/// Calls body(begin, end) on ranges that cover [0, n), on up to omp_get_max_threads() threads if each
/// gets at least `grain` items. The first exception is rethrown here. Never nests: inside another loop
/// it is serial.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  struct Cut {
    int64_t n;
    int count;
    std::remove_reference_t<Body>& body;
    void run(int i) const {
      const int64_t begin = n * i / count, end = n * (i + 1) / count;
      if (begin < end) body(begin, end);
    }
  };
  const int64_t wanted = grain > 0 ? n / grain : n;
  const bool alone = wanted < 2 || in_loop() || omp_in_parallel();
  const int threads = alone ? 1 : int(std::min<int64_t>(wanted, omp_get_max_threads()));
  if (threads == 1) {
    if (n > 0) body(int64_t(0), n);
    return;
  }
  Cut cut{n, threads, body};
  run_parts(
      threads, [](void* c, int i) { static_cast<Cut*>(c)->run(i); }, &cut);
}

}  // namespace gradus
