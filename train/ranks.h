#pragma once
// The ranks of a training run: a grid of tensor ranks (fastest) and data ranks.
//
//   tp 2, dp 3      tp ─▶        a model is cut over the ranks of a row;
//               dp  0  1         the rows hold the same model and compute other samples
//               │   2  3
//               ▼   4  5
#include <exception>

#include "parallel/finalize.h"
#include "train/settings.h"

namespace gradus::train {

/// One rank's view of them. By default there is one rank.
struct Ranks {
  parallel::Communicator world, tp, dp;

  Ranks() = default;
  /// Called by all ranks of `world`. Error unless there are tp · dp of them.
  Ranks(const parallel::Communicator& world, const Settings& settings);

  parallel::TrainingGroups groups() const { return {tp, dp, world}; }
  bool is_first() const { return world.rank() == 0; }
};

/// Called by all ranks, with what went wrong on this one, or "": if anything did on any of them, all
/// get the same Error, which names the ranks.
void throw_together(const parallel::Communicator& world, const std::string& fault);

/// Runs f, which must not communicate, on each rank of a group. An Error of one becomes an Error of all.
template <class F>
void together(const parallel::Communicator& world, F&& f) {
  if (world.size() == 1) return f();
  std::string fault;
  try {
    f();
  } catch (const Error& error) {
    fault = error.what();
  }
  throw_together(world, fault);
}

/// Whether any rank says yes.
bool any_of(const parallel::Communicator& world, bool mine);

/// The text of the first rank.
std::string from_first(const parallel::Communicator& world, const std::string& text);

}  // namespace gradus::train
