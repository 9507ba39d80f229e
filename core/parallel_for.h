#pragma once
// Loops over the cores of one machine (OpenMP). Work is cut into equal ranges; a body must give the
// same result for every cut, so that numbers do not depend on the number of threads.
#include <algorithm>
#include <cstdint>
#include <exception>

#include <omp.h>

namespace gradus {

/// Calls body(begin, end) on ranges that cover [0, n), on several threads if each gets at least
/// `grain` items. The first exception is rethrown here. Never nests: inside another loop it is serial.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  int64_t wanted = grain > 0 ? n / grain : n;
  int threads = wanted < 2 || omp_in_parallel()
                    ? 1
                    : int(std::min<int64_t>(wanted, omp_get_max_threads()));
  if (threads == 1) {
    if (n > 0) body(int64_t(0), n);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  {
    int64_t i = omp_get_thread_num(), count = omp_get_num_threads();
    int64_t begin = n * i / count, end = n * (i + 1) / count;
    try {
      if (begin < end) body(begin, end);
    } catch (...) {
#pragma omp critical
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace gradus
