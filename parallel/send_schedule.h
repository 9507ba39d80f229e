#pragma once
// When the gradients of a step are sent to the other data ranks.
//
// Note [late sends]
// NVLink sleeps after 50 ms without traffic, and awake it takes power that the multiprocessors of a GPU at its
// limit could use. Buckets that are sent as they become ready, all through backward, keep it awake. So the
// first ones wait until what is left of backward is just long enough to hide them:
//
//   at once     ── forward ── backward ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒ update ──       ▒ links awake
//   late        ── forward ── backward ─────────────────▒▒▒▒▒▒▒▒ update ──
//
// GPT-2 124M, 64 sequences a GPU, on two H200 at 700 W, 2026-11-30. Two trainings that do not talk take 101.8 and
// 100.8 ms a step; with a copy of 64 KiB between the GPUs each millisecond, 104.3 and 104.2 ms. Two with
// ZeRO-1 together take 105.6, 105.1 and 105.5 ms a step where buckets are sent at once, 104.4, 104.5 and 104.5 ms
// where seven of them wait, as these rules say (on another pair of GPUs; one of them alone: 102.0 ms).
//
// Nobody need say when that is: the first steps are timed, and send at once.
#include <cstdint>
#include <vector>

#include "core/time_mark.h"

namespace gradus::parallel {

/// How many buckets wait for the one after them before any is sent. All in the order of sending, in ms:
/// `until_end`, from when a bucket can be sent to the end of backward; `traffic`, how long it is under way;
/// `step`, from the end of a backward to the end of the next. 0 where the links would not come to sleep.
int buckets_to_hold(const std::vector<double>& until_end, const std::vector<double>& traffic,
                    double step);

/// Those times, of the first steps. The host does not wait while they are taken.
class SendTimes {
 public:
  SendTimes(Device device, size_t buckets) : device_(device), buckets_(buckets) {}

  /// Of each bucket in turn, three: it can be sent; its sending begins, aside; it is sent.
  void mark() { sends_.emplace_back(device_); }
  void mark_end_of_backward() { ends_.emplace_back(device_); }

  /// Whether all steps that are timed, and one more, are asked for: then reading does not keep the device idle.
  bool are_complete() const;
  /// The shortest of each over the steps, in µs: until_end and traffic of all buckets, then the step.
  std::vector<int64_t> shortest() const;

 private:
  Device device_;
  size_t buckets_;
  std::vector<TimeMark> sends_, ends_;
};

/// From what shortest() was on all ranks, one after the other, the same decision on each. Of ranks, too, the
/// shortest counts: the time under way of the one that comes last contains no waiting for others.
int common_buckets_to_hold(const std::vector<int64_t>& of_all_ranks, size_t buckets);

}  // namespace gradus::parallel
