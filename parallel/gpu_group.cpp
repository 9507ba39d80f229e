// Who carries tensors on GPUs.
#include "parallel/gpu_group.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>

#include "core/cuda.h"
#include "parallel/nccl_group.h"
#include "parallel/peer_group.h"
#include "parallel/staged_group.h"

namespace gradus::parallel {
namespace {

/// The GPU, by a name that no other has, on the host that NCCL takes this one for.
std::string gpu_text(Device device) {
  check_device(device);
  std::string text;
#if defined(GRADUS_CUDA)
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device.index), "asking for the name of a GPU");
  for (const char byte : properties.uuid.bytes) text += std::to_string(int(byte)) + " ";
  if (const char* host = std::getenv("NCCL_HOSTID")) text += host;
#endif
  return text;
}

std::string process_text() {
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + " " + std::to_string(getpid());
}

/// Two ranks that gave the same text, or {0, 0}.
std::pair<size_t, size_t> equal_pair(const std::vector<std::string>& texts) {
  std::map<std::string, size_t> first;
  for (size_t k = 0; k < texts.size(); ++k)
    if (const auto [it, is_new] = first.try_emplace(texts[k], k); !is_new) return {it->second, k};
  return {0, 0};
}

bool all_equal(const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    if (text != texts[0]) return false;
  return true;
}

void say_once_that_it_is_slow(const Communicator& ranks) {
  static std::once_flag once;
  std::call_once(once, [&] {
    std::cerr << "gradus: ranks share a GPU (" << ranks.describe()
              << "): what they send goes through host memory, slowly\n";
  });
}

}  // namespace

Communicator view_of(Group& group) {
  return Communicator(std::shared_ptr<Group>(std::shared_ptr<Group>(), &group));
}

std::unique_ptr<Group> make_gpu_group(Group& host, Device device) {
  const Communicator ranks = view_of(host);
  const std::vector<std::string> gpus = ranks.all_gather_text(gpu_text(device));
  const bool one_process = all_equal(ranks.all_gather_text(process_text()));
  const auto [a, b] = equal_pair(gpus);
  if (a == b) {
    auto nccl = make_nccl_group(host, device, one_process);
    const bool peers = one_process && are_peers(ranks, device);
    return peers ? make_peer_group(host, device, std::move(nccl)) : std::move(nccl);
  }
  check(
      one_process, "ranks ", host.world_ranks()[a], " and ", host.world_ranks()[b], " of ",
      ranks.describe(),
      " are on the same GPU; processes need one for each rank: use fewer ranks, or more GPUs (or, "
      "to try something out, share it slowly: give each process another NCCL_HOSTID)");
  say_once_that_it_is_slow(ranks);
  return std::make_unique<StagedGroup>(host);
}

}  // namespace gradus::parallel
