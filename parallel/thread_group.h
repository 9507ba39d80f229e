#pragma once
// A group whose ranks are threads of this process: they read each other's memory (parallel/meeting.h).
#include "parallel/group.h"
#include "parallel/meeting.h"

namespace gradus::parallel {

class ThreadGroup final : public Group {
 public:
  /// The group of all ranks: one end for each.
  static std::vector<std::shared_ptr<Group>> make_world(const std::shared_ptr<ThreadWorld>& world,
                                                        int ranks);

  ThreadGroup(std::shared_ptr<Meeting> meeting, int rank);

  double timeout() const override { return meeting_->world->options().timeout; }
  std::function<std::string()> failure_probe() const override {
    return [world = meeting_->world] { return world->failure(); };
  }
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
  void together(const Call& call, Meeting::Buffers mine, const Meeting::Share& share);
  int world_rank() const { return world_ranks()[size_t(rank())]; }

  std::shared_ptr<Meeting> meeting_;
  uint64_t calls_ = 0;
};

}  // namespace gradus::parallel
