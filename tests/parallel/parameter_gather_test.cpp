#include <gtest/gtest.h>

#include <algorithm>

#include "optim/sgd.h"
#include "parallel/data_parallel.h"
#include "parallel/run_ranks.h"
#include "tests/parallel/leaves.h"
#include "tests/parallel/rank_helpers.h"

namespace gradus::parallel {
namespace {

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

}  // namespace
}  // namespace gradus::parallel
