#pragma once
// A collective that was begun and gives a tensor, which is waited for where it is needed: what is computed
// in between hides the time that the collective takes (parallel/pending.h).
//
//   Started sum = begin_all_reduce(group, dx);
//   Tensor dw = …;                               // does not need it
//   return {sum.wait(), dw};
#include "parallel/communicator.h"
#include "parallel/pending.h"

namespace gradus::parallel {

class Started {
 public:
  Started() = default;  // undefined
  /// A result that is there already.
  explicit Started(Tensor result) : result_(std::move(result)) {}
  Started(Tensor result, Pending work) : result_(std::move(result)), work_(std::move(work)) {}
  /// The result, for what this thread asks of the device from here on. To be called once.
  Tensor wait() {
    work_.join();
    return std::move(result_);
  }

 private:
  Tensor result_;
  Pending work_;
};

/// Σ_k x_k, written over x.
inline Started begin_all_reduce(const Communicator& group, const Tensor& x) {
  return {x, start_aside({x}, [&] { group.all_reduce_into(x); })};
}
/// The rows of all ranks, of contiguous x (rows, C).
inline Started begin_all_gather(const Communicator& group, const Tensor& x) {
  Tensor all = empty({x.size(0) * group.size(), x.size(1)}, x.dtype(), x.device());
  return {all, start_aside({x, all}, [&] { group.all_gather_into(all, x); })};
}
/// This rank's rows of Σ_k x_k, of contiguous x (rows, C).
inline Started begin_reduce_scatter(const Communicator& group, const Tensor& x) {
  Tensor part = empty({x.size(0) / group.size(), x.size(1)}, x.dtype(), x.device());
  return {part, start_aside({x, part}, [&] { group.reduce_scatter_into(part, x); })};
}

}  // namespace gradus::parallel
