#pragma once
// A group whose ranks are processes.
//
// Before each collective every rank tells every other what it calls: so a disagreement is an Error on all of
// them, and one who does not come is known by name. Then bytes move, and each rank adds in the order of the
// ranks (parallel/rank_order.h): results are those of ranks as threads, bit by bit, in every type.
//
//   all_reduce       all-to-all of slices, sum of mine, all-gather of the sums
//   reduce_scatter   all-to-all of slices, sum of mine
#if defined(GRADUS_MPI)
#include <algorithm>

#include "parallel/call.h"
#include "parallel/group.h"
#include "parallel/mpi.h"
#include "parallel/mpi_process.h"

namespace gradus::parallel {

class MpiGroup final : public Group {
 public:
  /// Frees `comm` in the end, unless that is the world.
  MpiGroup(std::string name, int rank, std::vector<int> world_ranks, MPI_Comm comm,
           ProcessOptions options);
  ~MpiGroup() override;

  double timeout() const override { return options_.timeout; }
  void end_waits(const std::string& why) override { parallel::end_waits(why); }
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
  using Bytes = std::vector<char>;

  /// Begins a call: waits for all ranks, and compares.
  void come_together(const Call& call);
  void fail_to_agree();
  void wait(MpiRequests requests, const std::vector<int>& peers);
  std::string waiting() const;

  // Each of these moves at most one piece: `bytes` to and from each rank.
  Bytes exchange(const Bytes& out, int64_t bytes);
  Bytes gather(const char* mine, int64_t bytes);
  void reduce_piece(char* x, int64_t count, DType dtype, Reduce how);
  /// Calls body(begin, end) on ranges of at most a piece that cover `bytes`, each a multiple of 8 long but
  /// the last.
  template <class Body>
  void in_pieces(int64_t bytes, Body&& body) const;
  template <class Start>
  MpiRequests piecewise(const Tensor& x, Start&& start) const;

  static constexpr int kControlTag = 32767;  // tags up to here exist in every MPI
  MPI_Comm comm_;
  ProcessOptions options_;
  uint64_t calls_ = 0;
  Call call_;  // the one under way
};

template <class Body>
void MpiGroup::in_pieces(int64_t bytes, Body&& body) const {
  const int64_t piece = options_.piece / 8 * 8;
  for (int64_t begin = 0; begin < bytes; begin += piece)
    body(begin, std::min(begin + piece, bytes));
}

}  // namespace gradus::parallel
#endif
