// Buckets that wait for each other (Note [late sends] in parallel/send_schedule.h).
#include <gtest/gtest.h>

#include "core/delay.h"
#include "parallel/data_parallel.h"
#include "parallel/run_ranks.h"
#include "tests/parallel/each_world.h"
#include "tests/parallel/leaves.h"
#include "tests/parallel/rank_helpers.h"

namespace gradus::parallel {
namespace {

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

}  // namespace
}  // namespace gradus::parallel
