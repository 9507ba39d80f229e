#pragma once
// Data parallelism: each rank has the whole model (or its shard of it) and other samples. A gradient is the
// sum over all samples, and what the ranks have of it is summed in the arena, bucket by bucket, while
// backward goes on:
//
//   backward   ── head ── block 3 ── block 2 ── block 1 ──┬── block 0 ──────┬── table ──┬──
//   aside                                                 └─ Σ 4 ─ Σ 3 ─ Σ 2 ── Σ 1 ──  └── Σ bucket 0 ──
//
// A bucket may be sent once each of its leaves has its gradient, in the last backward of a step: before,
// the sums over micro-batches are not complete. All ranks send all buckets in one order, whatever became
// ready first on which: otherwise they would wait for each other for ever. That order is the one in which
// buckets became ready in the first step, on rank 0. On GPUs the first buckets of the order wait for each
// other and go together, as late as backward hides them (Note [late sends] in parallel/send_schedule.h).
//
// With slices (ZeRO-1) a rank gets the sum of its own slice only, by a reduce-scatter, for half the
// traffic; the rest of the arena is then not a gradient of anything.
#include <memory>

#include "optim/flat_buffer.h"
#include "parallel/communicator.h"
#include "parallel/pending.h"
#include "parallel/send_schedule.h"

namespace gradus::parallel {

class DataParallel {
 public:
  /// Listens to the leaves of `flat`, which must live longer. Without `overlap` all is sent by finish().
  /// Error unless the slices of `flat`, if any, are those of `group`.
  DataParallel(optim::FlatBuffer& flat, const Communicator& group, bool overlap = true);
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// The next backward is the last before finish(): buckets are sent as it completes them. Error when a
  /// gradient grows after that.
  void expect_last_backward();
  /// Sends what was not sent; what no backward reached counts as 0. From here on, in the order of the
  /// stream, the own slices of all buckets hold sums over the ranks.
  void finish();

  /// How many buckets, once ready, wait for the one after them before any is sent. 0 until the first steps
  /// have shown better, and always without overlap and on the CPU.
  int held_back() const { return int(held_); }
  /// Sets it, in place of what the steps show. By all ranks, between two steps.
  void hold_back(int buckets);

 private:
  void expect_all();
  void arrived(size_t slot);
  void send_ready();
  void send(int bucket);
  void take_order_of_first_rank();
  void choose_when_to_send();

  optim::FlatBuffer& flat_;
  Communicator group_;
  bool overlap_;
  size_t held_ = 0;
  bool is_timed_;                     // the first steps are, for the choice of held_
  std::unique_ptr<SendTimes> times_;  // while they are
  std::vector<int> order_;            // in which buckets are sent
  bool is_order_final_ = false;
  bool is_last_ = false;           // the backward that runs is the last of the step
  std::vector<bool> has_arrived_;  // of a slot, in it
  std::vector<int> missing_;       // of a bucket: slots that have not
  std::vector<int> ready_;  // buckets with none missing, in the order in which they became so
  size_t sent_ = 0;         // of order_
  std::vector<Pending> pending_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // hooks outlive this object
};

/// Brings slices of the parameters, each updated by one rank, to all ranks: a bucket as soon as it is updated,
/// beside the update of the next and beside the next forward, which waits for a bucket where it reads it first.
///
///   stream   ── update 0 ─┬─ update 1 ─── update 2 ───┬─ table ────┬─ block 0 ──┬─ block 1 ── …
///   aside                 └───────── gather 0 ────────┴─ gather 1 ─┴─ gather 2 ─┘
///
/// So do all other readers: parameters are views of memory that knows what is on its way to it (Note [late writes]
/// in core/storage.h). From the second update on, buckets come in the order in which the first forward, on
/// rank 0, has read them. Does nothing without slices.
class ParameterGather {
 public:
  /// Listens to updates of `flat`, which must live longer.
  ParameterGather(optim::FlatBuffer& flat, const Communicator& group);
  ~ParameterGather() { flat_.when_updated = {}; }
  ParameterGather(const ParameterGather&) = delete;
  ParameterGather& operator=(const ParameterGather&) = delete;

  /// Before each update, after the backward: waits, in stream order, for what nobody has read since the last.
  void begin();
  /// After each update: gathers the rest. Whoever reads parameters from here on has those of all ranks.
  void finish();

 private:
  void start(int bucket);
  void take_order_of_first_rank();

  optim::FlatBuffer& flat_;
  Communicator group_;
  size_t started_ = 0;  // of flat_.order
  std::shared_ptr<std::vector<int>> read_ =
      std::make_shared<std::vector<int>>();  // since the last update
  bool is_order_final_ = false;
};

}  // namespace gradus::parallel
