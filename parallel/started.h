#pragma once
// A collective that was begun, and whose result is waited for later: what is computed in between hides
// its time. Products and collectives are then in the order
//
//   begin(a);  product that does not need a;  a.wait();  product that does
//
// Where no stream of its own carries the collectives, beginning one is doing it.
#include "parallel/communicator.h"

namespace gradus::parallel {

class Started {
 public:
  Started() = default;
  explicit Started(Tensor result) : result_(std::move(result)) {}
  /// The result, once it is there. To be called once.
  Tensor wait() { return std::move(result_); }

 private:
  Tensor result_;
};

/// Σ_k x_k, written over x.
inline Started begin_all_reduce(const Communicator& group, Tensor x) {
  group.all_reduce_into(x);
  return Started(std::move(x));
}
/// The rows of all ranks.
inline Started begin_all_gather(const Communicator& group, const Tensor& x) {
  return Started(group.all_gather(x, 0));
}
/// This rank's rows of Σ_k x_k.
inline Started begin_reduce_scatter(const Communicator& group, const Tensor& x) {
  return Started(group.reduce_scatter(x, 0));
}

}  // namespace gradus::parallel
