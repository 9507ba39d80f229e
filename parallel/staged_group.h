#pragma once
// Tensors on a GPU, carried through host memory by a group for the CPU: for ranks that share a GPU, which
// NCCL refuses, and for programs without NCCL. Slow, and the host waits.
#include "parallel/group.h"

namespace gradus::parallel {

class StagedGroup final : public Group {
 public:
  /// `host` outlives it.
  explicit StagedGroup(Group& host);

  void all_reduce(const Tensor& x, Reduce how) override;
  void broadcast(const Tensor& x, int root) override;
  void all_gather(const Tensor& all, const Tensor& part) override;
  void reduce_scatter(const Tensor& part, const Tensor& all) override;
  void all_to_all(const Tensor& out, const Tensor& in) override;
  void send(const Tensor& x, int to, int tag) override;
  void receive(const Tensor& x, int from, int tag) override;
  void barrier() override;
  std::shared_ptr<Group> split(int color, int key, const std::string& name) override;

 private:
  Group& host_;
};

}  // namespace gradus::parallel
