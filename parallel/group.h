#pragma once
// What a back end implements: one rank's end of a group. Tensors are contiguous and of the sizes that
// parallel/communicator.h promises; `all` and in-place arguments belong to the caller.
#include <functional>

#include "parallel/communicator.h"

namespace gradus::parallel {

class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return int(world_ranks_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  /// What carries tensors of `device` between the same ranks: this one, for the CPU; for a GPU another,
  /// made when it is first asked for, which all ranks of the group do in the same call.
  Group& on(Device device);
  /// Seconds that a rank waits for others before that is an Error, unless a WaitLimit says otherwise.
  virtual double timeout() const { return 20; }
  /// A function that says, from any thread and as long as it lives, why the group has failed: another rank
  /// has, so waiting for it is in vain. An empty text: it has not. None where the ranks do not know.
  virtual std::function<std::string()> failure_probe() const { return {}; }
  /// From any thread: waits of this rank, the present one and later ones, are in vain, as `why` says.
  virtual void end_waits(const std::string& why) { (void)why; }

  virtual void all_reduce(const Tensor& x, Reduce how) = 0;
  virtual void broadcast(const Tensor& x, int root) = 0;
  virtual void all_gather(const Tensor& all, const Tensor& part) = 0;
  virtual void reduce_scatter(const Tensor& part, const Tensor& all) = 0;
  /// Part k of `out` comes from rank k, part k of `in` goes to it.
  virtual void all_to_all(const Tensor& out, const Tensor& in) = 0;
  virtual void send(const Tensor& x, int to, int tag) = 0;
  virtual void receive(const Tensor& x, int from, int tag) = 0;
  virtual void barrier() = 0;
  /// The new group of those with the same color, ordered by key; null for a negative color.
  virtual std::shared_ptr<Group> split(int color, int key, const std::string& name) = 0;

 protected:
  Group(std::string name, int rank, std::vector<int> world_ranks)
      : name_(std::move(name)), rank_(rank), world_ranks_(std::move(world_ranks)) {}

 private:
  std::string name_;
  int rank_;
  std::vector<int> world_ranks_;
  std::unique_ptr<Group> on_gpu_;
};

}  // namespace gradus::parallel
