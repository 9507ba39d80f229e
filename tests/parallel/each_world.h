#pragma once
// The same test bodies on every kind of ranks: threads here, processes where mpirun started this program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "core/cuda.h"
#include "parallel/mpi.h"
#include "parallel/nccl_group.h"

namespace gradus::parallel {

using Body = std::function<void(Communicator world)>;

/// Runs body(world) on groups of several sizes; on processes also where all messages are in pieces.
inline void on_each_world(const Body& body, RankOptions options = {}) {
  if (launched_by_mpi()) {
    body(mpi_world({options}));
    options.delay_seed = 1;
    return body(mpi_world({options, 256}));
  }
  for (int n : {1, 2, 3, 4}) {
    SCOPED_TRACE(n);
    run_ranks(n, body, options);
  }
}

/// Whether NCCL carries tensors between so many ranks here: each has a GPU, or they are processes and may share
/// one (parallel/gpu_group.h).
inline bool nccl_carries(int ranks) {
  const int gpus = cuda_device_count();
  const bool may_share = launched_by_mpi() && std::getenv("NCCL_HOSTID");
  return has_nccl() && (gpus >= ranks || (gpus > 0 && may_share));
}

inline Device gpu_of(const Communicator& world) {
  return {DeviceType::cuda, int8_t(world.rank() % cuda_device_count())};
}

/// What `call` throws as an Error, or an empty text.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

/// Expects `call` to throw an Error whose text has each of `words`.
inline void expect_error(const std::function<void()>& call, const std::vector<std::string>& words) {
  const std::string text = error_of(call);
  EXPECT_NE(text, "") << "nothing was thrown";
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
}

}  // namespace gradus::parallel
