#include "parallel/data_parallel.h"

#include <gtest/gtest.h>

#include "autograd/recompute.h"
#include "ops/ops.h"
#include "parallel/run_ranks.h"
#include "tests/parallel/each_world.h"
#include "tests/parallel/leaves.h"
#include "tests/parallel/rank_helpers.h"

namespace gradus::parallel {
namespace {

constexpr int64_t kBuckets[] = {1, 100, int64_t(1) << 40};  // of one leaf, of two, of all

// P7 and the trap of counting over the step: only the last backward sends, and it sends while it runs.
TEST(DataParallel, TheLastBackwardSendsWhatItCompletes) {
  for (int64_t bucket : kBuckets)
    run_ranks(3, [&](Communicator dp) {
      const Tensors list = leaves(5);
      optim::FlatBuffer flat(optim::default_groups(list), {.bucket = bucket});
      DataParallel data(flat, dp);
      for (int step = 0; step < 3; ++step) {
        flat.zero_grad();
        loss_of(list, 1 + dp.rank()).backward();
        EXPECT_EQ(list[1].grad().to_vector(), Values(3, 2 * (1 + dp.rank())));
        data.expect_last_backward();
        loss_of(list, 10).backward();
        EXPECT_EQ(list[4].grad().to_vector(), Values(3, 5 * (1 + 2 + 3 + 30)));
        data.finish();
        for (int i = 0; i < 5; ++i)
          EXPECT_EQ(list[size_t(i)].grad().to_vector(), Values(3, (i + 1) * 36));
      }
    });
}

TEST(DataParallel, WithoutOverlapAllIsSentAtTheEnd) {
  run_ranks(2, [&](Communicator dp) {
    const Tensors list = leaves(2);
    optim::FlatBuffer flat(optim::default_groups(list));
    DataParallel data(flat, dp, false);
    data.expect_last_backward();
    loss_of(list, 1 + dp.rank()).backward();
    EXPECT_EQ(list[1].grad().to_vector(), Values(3, 2 * (1 + dp.rank())));
    data.finish();
    EXPECT_EQ(list[1].grad().to_vector(), Values(3, 6));
  });
}

// A parameter that is unused, on one rank or on all, in one step or in each: it counts as 0, and nobody
// waits for it.
TEST(DataParallel, WhatNoBackwardReachesIsZero) {
  for (int64_t bucket : kBuckets)
    run_ranks(2, [&](Communicator dp) {
      const Tensors list = leaves(4);
      optim::FlatBuffer flat(optim::default_groups(list), {.bucket = bucket});
      DataParallel data(flat, dp);
      for (int step = 0; step < 4; ++step) {
        flat.zero_grad();
        data.expect_last_backward();
        const int left_out = step == 3 ? 3 : dp.rank();
        loss_of(list, 1, left_out).backward();
        data.finish();
        for (int i = 0; i < 4; ++i) {
          const int ranks = step == 3 ? 2 * (i != 3) : i < 2 ? 1 : 2;
          EXPECT_EQ(flat.view(flat.gradients(), flat.slots()[size_t(i)]).to_vector(),
                    Values(3, (i + 1) * ranks));
        }
      }
    });
}

// Ranks whose buckets become ready in different orders send them in one.
TEST(DataParallel, RanksThatAreReadyInDifferentOrdersAgreeOnOne) {
  run_ranks(3, [&](Communicator dp) {
    const Tensors list = leaves(6);
    optim::FlatBuffer flat(optim::default_groups(list), {.bucket = 1});
    DataParallel data(flat, dp);
    for (int step = 0; step < 3; ++step) {
      flat.zero_grad();
      Tensor loss = zeros({}, DType::f64);
      for (int k = 0; k < 6; ++k) {  // backward comes to what was used last first
        const int i = (k * (dp.rank() + 1 == 2 ? 5 : 1) + dp.rank()) % 6;
        loss = loss + sum(list[size_t(i)]) * double(i + 1);
      }
      data.expect_last_backward();
      loss.backward();
      data.finish();
      for (int i = 0; i < 6; ++i)
        EXPECT_EQ(list[size_t(i)].grad().to_vector(), Values(3, 3 * (i + 1)));
    }
  });
}

TEST(DataParallel, AGradientThatGrowsAfterItWasSentIsAnError) {
  expect_error(
      [] {
        run_ranks(2, [&](Communicator dp) {
          const Tensors list = leaves(2);
          optim::FlatBuffer flat(optim::default_groups(list));
          DataParallel data(flat, dp);
          data.expect_last_backward();
          loss_of(list, 1).backward();
          loss_of(list, 1).backward();
        });
      },
      {"parameter 1", "grew after it was sent"});
}

// Leaves inside recomputed segments arrive when these are run again; one that two segments share arrives
// twice, and is not to be sent with what it has the first time.
TEST(DataParallel, RecomputedSegmentsAreWaitedFor) {
  auto twice = [](const Tensor& x, const Tensor& w, const Tensor& v) {
    auto times = [](const Tensor& w) {
      return [w](const Tensors& in) { return Tensors{mul(in[0], w)}; };
    };
    return sum(recompute(times(w), recompute(times(v), {x}))[0]);
  };
  run_ranks(2, [&](Communicator dp) {
    const Tensors list = leaves(3);
    optim::FlatBuffer flat(optim::default_groups(list), {.bucket = 1});
    DataParallel data(flat, dp);
    data.expect_last_backward();
    twice(mul(list[0], dp.rank() + 2), list[1], list[2]).backward();
    data.finish();
    for (const Tensor& x : list) EXPECT_EQ(x.grad().to_vector(), Values(3, 5));
  });
  run_ranks(2, [&](Communicator dp) {  // complete before the last leaf of its bucket arrives
    const Tensors list = leaves(2);
    optim::FlatBuffer flat(optim::default_groups(list));
    DataParallel data(flat, dp);
    data.expect_last_backward();
    twice(mul(list[0], dp.rank() + 2), list[1], list[1]).backward();
    data.finish();
    EXPECT_EQ(list[1].grad().to_vector(), Values(3, 10));
  });
  expect_error(
      [&] {
        run_ranks(2, [&](Communicator dp) {
          const Tensors list = leaves(2);
          optim::FlatBuffer flat(optim::default_groups(list), {.bucket = 1});
          DataParallel data(flat, dp);
          data.expect_last_backward();
          twice(list[0], list[1], list[1]).backward();
        });
      },
      {"parameter 1", "several recomputed segments"});
}

// With slices a rank has the sum of its own slices, whatever borders of parameters they cross.
TEST(DataParallel, SlicesAreReduceScattered) {
  for (int ranks : {2, 3})
    run_ranks(ranks, [&](Communicator dp) {
      Tensors list;
      for (int64_t n : {100, 7, 300}) list.push_back(zeros({n}, DType::f64).requires_grad_());
      optim::FlatBuffer flat(optim::default_groups(list),
                             {.slice = dp.rank(), .slices = ranks, .bucket = 200});
      DataParallel data(flat, dp);
      data.expect_last_backward();
      for (const Tensor& x : list)
        mul(x, x + 1).backward(mul(arange(x.numel(), DType::f64), double(1 + dp.rank())));
      data.finish();
      for (const optim::Slot& slot : flat.slots()) {
        const optim::OwnPart own = flat.layout().own_part(slot);
        for (int64_t i = own.begin; i < own.end; ++i)
          EXPECT_EQ(flat.gradients().at(slot.offset + i), double(i * ranks * (ranks + 1) / 2));
      }
    });
}

TEST(DataParallel, SlicesOfAnotherGroupAreAnError) {
  const Tensors list = leaves(1);
  optim::FlatBuffer flat(optim::default_groups(list), {.slices = 2});
  EXPECT_THROW(DataParallel(flat, {}), Error);
}

}  // namespace
}  // namespace gradus::parallel
