#pragma once
// A group of ranks and the ways they talk.
//
//   collective            rank r gives         rank r gets
//   all_reduce            x_r                  Σ_k x_k
//   all_gather            x_r                  x_0 x_1 … side by side
//   reduce_scatter        x_r, n equal parts   part r of Σ_k x_k
//   broadcast             x_r                  x_root
//   all_to_all            x_r, n equal parts   part r of x_0, part r of x_1 …
//
// Who carries the bytes depends on where they are. A tensor on the CPU goes through the memory that the
// ranks share (ranks as threads: parallel/run_ranks.h) or through MPI (ranks as processes:
// parallel/mpi.h). A tensor on a GPU goes through NCCL or from memory to memory (parallel/gpu_group.h), in
// the order of this thread's stream, and the host does not wait for it.
//
// All ranks of a group call the same collectives in the same order, with the same shapes and types. Where
// they do not, every rank gets an Error that names two that disagree. A rank that throws takes the others
// with it, and one that does not come is named after a while by those who wait for it. No input is written to;
// a tensor that is not contiguous is copied first. A group of one does nothing and costs nothing: a
// parallel layer in it is the dense layer.
#include <memory>
#include <string>
#include <vector>

#include "autograd/tensor.h"

namespace gradus::parallel {

enum class Reduce { sum, max };

class Group;  // parallel/group.h: what a back end implements

class Communicator {
 public:
  Communicator() = default;  // a group of one
  explicit Communicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  int rank() const;  // 0 … size − 1
  int size() const;
  /// "tp of ranks 0, 1": for messages.
  std::string describe() const;
  /// The ranks of the whole program that are in this group, by their rank in it.
  std::vector<int> world_ranks() const;

  // ---- into new tensors. `dim` is the axis along which parts lie side by side; it may be negative.
  // Error when it does not divide by the size of the group.
  Tensor all_reduce(const Tensor& x, Reduce how = Reduce::sum) const;
  Tensor all_gather(const Tensor& x, int dim = 0) const;
  Tensor reduce_scatter(const Tensor& x, int dim = 0) const;
  Tensor broadcast(const Tensor& x, int root = 0) const;
  /// Cuts x along `cut` and lays what comes side by side along `join`.
  Tensor all_to_all(const Tensor& x, int cut = 0, int join = 0) const;

  // ---- into memory of the caller, contiguous
  void all_reduce_into(const Tensor& x, Reduce how = Reduce::sum) const;  // x ← Σ_k x_k
  void broadcast_into(const Tensor& x, int root = 0) const;
  // `part` may be part `rank()` of `all` itself. Both are seen as one row of elements.
  void all_gather_into(const Tensor& all, const Tensor& part) const;
  void reduce_scatter_into(const Tensor& part, const Tensor& all) const;

  // ---- between two ranks, on GPUs after a first collective. They match by source, destination and tag.
  void send(const Tensor& x, int to, int tag = 0) const;
  /// Writes what comes into `x`, contiguous. Error when the sender's shape or type is another.
  void receive_into(const Tensor& x, int from, int tag = 0) const;

  /// Every rank's values, on the host: for counts, names, sizes. All give equally many.
  std::vector<int64_t> all_gather_values(const std::vector<int64_t>& mine) const;
  /// Every rank's text, by rank; each as long as it likes.
  std::vector<std::string> all_gather_text(const std::string& mine) const;
  void barrier() const;

  /// New groups: the ranks that give the same `color`, in the order of `key`, equals in that of their rank.
  /// Called by all ranks of this group. `name` is for messages. A negative color asks for no group; what
  /// comes back is a group of one.
  Communicator split(int color, int key, const std::string& name) const;

  bool operator==(const Communicator& other) const { return group_ == other.group_; }

 private:
  std::shared_ptr<Group> group_;  // null: a group of one
};

}  // namespace gradus::parallel
