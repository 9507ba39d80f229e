#include "parallel/data_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/recompute.h"
#include "core/delay.h"
#include "ops/ops.h"
#include "optim/sgd.h"
#include "parallel/run_ranks.h"
#include "tests/parallel/each_world.h"
#include "tests/parallel/rank_helpers.h"

namespace gradus::parallel {
namespace {

using Values = std::vector<double>;

Tensors leaves(int count) {
  Tensors list;
  for (int i = 0; i < count; ++i) list.push_back(ones({3}, DType::f64).requires_grad_());
  return list;
}

/// The gradient of leaf i becomes c (i + 1); those that are left out have none.
Tensor loss_of(const Tensors& list, double c, int left_out = -1) {
  Tensor loss = zeros({}, DType::f64);
  for (int i = 0; i < int(list.size()); ++i)
    if (i != left_out) loss = loss + sum(list[size_t(i)]) * (c * (i + 1));
  return loss;
}

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

/// After each leaf of the last backward, which goes from the last leaf to the first: how many leaves have the sum
/// over the two ranks, whatever the others.
std::vector<int> summed_leaves(int hold, bool overlap = true) {
  std::vector<std::vector<int>> summed(2);
  run_ranks(2, [&](Communicator dp) {
    const Tensors list = leaves(4);
    optim::FlatBuffer flat(optim::default_groups(list), {.bucket = 1});
    DataParallel data(flat, dp, overlap);
    data.hold_back(hold);
    EXPECT_EQ(data.held_back(), overlap ? hold : 0);
    std::vector<int>& mine = summed[size_t(dp.rank())];
    for (const Tensor& x : list)
      x.register_leaf_hook([&](const Tensor&) {
        int count = 0;
        for (int i = 0; i < 4; ++i) {
          const Tensor g = list[size_t(i)].grad();
          count += g && g.at(0) == 3 * (i + 1);
        }
        mine.push_back(count);
      });
    data.expect_last_backward();
    loss_of(list, 1 + dp.rank()).backward();
    data.finish();
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(list[size_t(i)].grad().to_vector(), Values(3, 3 * (i + 1)));
  });
  EXPECT_EQ(summed[0], summed[1]);
  return summed[0];
}

// Note [late sends]: the first buckets wait for each other, those after them for nobody.
TEST(DataParallel, BucketsThatAreHeldBackGoTogether) {
  EXPECT_EQ(summed_leaves(0), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(summed_leaves(1), (std::vector<int>{0, 2, 3, 4}));
  EXPECT_EQ(summed_leaves(2), (std::vector<int>{0, 0, 3, 4}));
  EXPECT_EQ(summed_leaves(3), (std::vector<int>{0, 0, 0, 4}));
  EXPECT_EQ(summed_leaves(4), (std::vector<int>{0, 0, 0, 0}));  // until finish()
  EXPECT_EQ(summed_leaves(2, false), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_THROW(summed_leaves(-1), Error);
}

// Also where ranks are ready in different orders, and where one waits for a leaf that nothing reaches.
TEST(DataParallel, HeldBackBucketsHaveTheSameSums) {
  const auto gradients = [](int hold, bool is_sliced) {
    std::vector<Values> all(3);
    run_ranks(3, [&](Communicator dp) {
      Tensors list;
      for (int i = 0; i < 6; ++i) list.push_back(random_values({50}, uint64_t(i)).requires_grad_());
      optim::FlatBuffer flat(
          optim::default_groups(list),
          {.slice = is_sliced ? dp.rank() : 0, .slices = is_sliced ? 3 : 1, .bucket = 70});
      DataParallel data(flat, dp);
      data.hold_back(hold);
      for (int step = 0; step < 4; ++step) {
        flat.zero_grad();
        for (int part = 0; part < 2; ++part) {
          Tensor loss = zeros({}, DType::f64);
          for (int k = 0; k < 6; ++k) {
            const int i = (k * (dp.rank() == 1 ? 5 : 1)) % 6;
            const bool is_left_out = i == step && (step != 2 || dp.rank() == 2);
            if (is_left_out) continue;
            const Tensor c = random_values({50}, uint64_t(100 + 3 * (2 * step + part) + dp.rank()));
            loss = loss + sum(mul(mul(list[size_t(i)], list[size_t(i)]), c));
          }
          if (part == 1) data.expect_last_backward();
          loss.backward();
        }
        data.finish();
        for (const optim::Bucket& b : flat.layout().buckets())
          for (double g : optim::part_of(flat.gradients(), is_sliced ? b.own : b.all).to_vector())
            all[size_t(dp.rank())].push_back(g);
      }
    });
    return all;
  };
  for (bool is_sliced : {false, true}) {
    const auto expected = gradients(0, is_sliced);
    for (int hold : {1, 2, 3}) EXPECT_EQ(gradients(hold, is_sliced), expected) << hold;
  }
}

TEST(DataParallel, AHeldBackGradientThatGrowsAfterItWasSentIsAnError) {
  for (int hold : {0, 1})
    expect_error(
        [&] {
          run_ranks(2, [&](Communicator dp) {
            const Tensors list = leaves(2);
            optim::FlatBuffer flat(optim::default_groups(list), {.bucket = 1});
            DataParallel data(flat, dp);
            data.hold_back(hold);
            data.expect_last_backward();
            loss_of(list, 1).backward();
            loss_of(list, 1).backward();
          });
        },
        {"parameter ", "grew after it was sent"});
}

// On GPUs the first steps show how long buckets may wait. Here backward has 30 ms between two leaves, so the
// traffic of all but the last bucket fits between the last two.
TEST(DataParallel, OnAGpuTheFirstStepsShowHowManyToHoldBack) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  for (double ms : {30.0, 1.0})  // steps of 90 ms, and of 3 ms, between which no link sleeps
    run_ranks(2, [&](Communicator dp) {
      const Device device = gpu_of(dp);
      Tensors list;
      for (int i = 0; i < 4; ++i) list.push_back(ones({1000}, DType::f32, device).requires_grad_());
      optim::FlatBuffer flat(optim::default_groups(list), {.bucket = 1});
      DataParallel data(flat, dp);
      for (int step = 0; step < 10; ++step) {
        EXPECT_EQ(data.held_back(), step < 6 || ms < 30 ? 0 : 2) << step;
        flat.zero_grad();
        Tensor x = zeros({1000}, DType::f32, device);
        for (const Tensor& w : list) {
          x = x + w;
          x.register_hook([&](const Tensor& g) {
            delay(device, ms);
            return g;
          });
        }
        data.expect_last_backward();
        sum(x * double(1 + dp.rank())).backward();
        data.finish();
        for (const Tensor& w : list) EXPECT_EQ(w.grad().at(0), 3);
      }
    });
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

// What each rank has updated, its slices, comes to all: bucket by bucket, as the update goes on.
TEST(ParameterGather, BringsEachSliceToAll) {
  run_ranks(3, [&](Communicator dp) {
    const Tensors list = leaves(70);
    optim::Sgd sgd(optim::default_groups(list), {},
                   {.slice = dp.rank(), .slices = 3, .bucket = 2000});
    optim::FlatBuffer& flat = sgd.flat();
    EXPECT_GT(flat.layout().buckets().size(), 2u);
    ParameterGather gather(flat, dp);
    for (int step = 1; step <= 2; ++step) {
      fill_(flat.gradients(), 1 + dp.rank());
      gather.begin();
      sgd.update(1);
      gather.finish();
      for (const optim::Slot& slot : flat.slots()) {
        const optim::Bucket& b = flat.layout().buckets()[size_t(slot.bucket)];
        for (int64_t i = 0; i < 3; ++i) {
          const int64_t rank = (slot.offset + i - b.all.begin) / b.own.size();
          EXPECT_EQ(slot.parameter.at(i), double(1 - step * (1 + rank)));
        }
      }
    }
  });
}

// Readers of a bucket wait for it, and for no other; the next buckets come in the order of the first readers.
TEST(ParameterGather, BucketsComeInTheOrderInWhichTheyAreRead) {
  run_ranks(2, [&](Communicator dp) {
    const Tensors list = leaves(6);
    optim::Sgd sgd(optim::default_groups(list), {}, {.slice = dp.rank(), .slices = 2, .bucket = 1});
    optim::FlatBuffer& flat = sgd.flat();
    ASSERT_EQ(flat.layout().buckets().size(), 6u);
    const auto bucket_of = [&](int leaf) {
      for (const optim::Slot& slot : flat.slots())
        if (slot.parameter.is_same(list[size_t(leaf)])) return slot.bucket;
      return -1;
    };
    const std::vector<int> as_they_lie = flat.order, leaves_read = {3, 0, 5};
    ParameterGather gather(flat, dp);
    const auto update = [&] {
      fill_(flat.gradients(), 1);
      gather.begin();
      sgd.update(1);
      gather.finish();
    };
    update();
    EXPECT_EQ(flat.order, as_they_lie);
    std::vector<int> expected;
    for (int leaf : leaves_read) {
      (void)sum(list[size_t(leaf)] * 2);
      (void)sum(list[size_t(leaf)]);  // again
      expected.push_back(bucket_of(leaf));
    }
    for (int b : as_they_lie)
      if (std::find(expected.begin(), expected.end(), b) == expected.end()) expected.push_back(b);
    update();
    EXPECT_EQ(flat.order, expected);
    for (int leaf = 5; leaf >= 0; --leaf) EXPECT_EQ(list[size_t(leaf)].at(2), -1);
    update();
    EXPECT_EQ(flat.order, expected);  // it stays
    for (const Tensor& x : list) EXPECT_EQ(x.at(2), -2);
  });
}

TEST(ParameterGather, UpdatesAreFinishedOneByOne) {
  run_ranks(2, [&](Communicator dp) {
    optim::Sgd sgd(optim::default_groups(leaves(1)), {}, {.slice = dp.rank(), .slices = 2});
    ParameterGather gather(sgd.flat(), dp);
    gather.begin();
    sgd.update(1);
    EXPECT_THROW(sgd.update(1), Error);
  });
}

TEST(DataParallel, SlicesOfAnotherGroupAreAnError) {
  const Tensors list = leaves(1);
  optim::FlatBuffer flat(optim::default_groups(list), {.slices = 2});
  EXPECT_THROW(DataParallel(flat, {}), Error);
}

}  // namespace
}  // namespace gradus::parallel
