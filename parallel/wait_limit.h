#pragma once
// How long a rank waits for another that does not come.
//
// A group has a limit (RankOptions::timeout), which is that of the slowest thing a program does between two
// meetings: a checkpoint that one rank saves while the others wait. Where ranks only compute, one that is missing
// for so long has hung much earlier, and a shorter limit says so. All ranks do the same things in the same order:
// the one that waits knows what it waits for.
//
//   WaitLimit limit(30);                          // seconds, for what this thread calls while it lives
//   step();
namespace gradus::parallel {

namespace detail {
inline thread_local double wait_limit = 0;
}

class WaitLimit {
 public:
  /// 0: as long as the group says.
  explicit WaitLimit(double seconds) : before_(detail::wait_limit) { detail::wait_limit = seconds; }
  ~WaitLimit() { detail::wait_limit = before_; }
  WaitLimit(const WaitLimit&) = delete;
  WaitLimit& operator=(const WaitLimit&) = delete;

 private:
  double before_;
};

/// Seconds that this thread waits, now, in a group with that timeout.
inline double wait_limit(double timeout) {
  return detail::wait_limit > 0 ? detail::wait_limit : timeout;
}

}  // namespace gradus::parallel
