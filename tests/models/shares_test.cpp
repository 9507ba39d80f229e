#include "models/shares.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "parallel/run_ranks.h"

namespace gradus {
namespace {

using parallel::Communicator;
using parallel::TensorParallel;
using Values = std::vector<double>;

// 3 texts of 4 tokens over 2 ranks: 6 rows each, one text and a half.
TEST(Shares, RowsOfTokensThatAreCut) {
  parallel::run_ranks(2, [](Communicator world) {
    const TokenRows rows(TensorParallel{world, true}, 3, 4);
    const bool first = world.rank() == 0;
    EXPECT_EQ(rows.first, first ? 0 : 6);
    EXPECT_EQ(rows.rows, 6);
    EXPECT_EQ(rows.length_of(zeros({6, 5})), 4);
    EXPECT_EQ(rows.positions(3, kCpu).to_vector(),
              first ? (Values{0, 1, 2, 3, 0, 1}) : (Values{2, 3, 0, 1, 2, 3}));
    const Tensor y = reshape(arange(12), {3, 4});
    EXPECT_EQ(rows.of(y).to_vector(),
              first ? (Values{0, 1, 2, 3, 4, 5}) : (Values{6, 7, 8, 9, 10, 11}));
    EXPECT_THROW(TokenRows(TensorParallel{world, true}, 3, 5), Error);
    EXPECT_FALSE(TokenRows(TensorParallel{world}, 3, 5).is_cut());
  });
}

TEST(Shares, WithoutACutATokenHasItsPlaceInTheBatch) {
  const TokenRows rows(TensorParallel{}, 3, 5);
  const Tensor y = zeros({3, 5});
  EXPECT_TRUE(rows.of(y).is_same(y));
  EXPECT_EQ(rows.length_of(zeros({3, 5, 7})), 5);
}

// The picture in the header: 8 heads in 2 groups over 4 ranks, each matrix block of d = 1 holding its number.
TEST(Shares, RanksThatShareAGroupPickTheirQueriesAndItsKeys) {
  const Values expected[] = {{0, 1, 4, 5}, {2, 3, 4, 5}, {6, 7, 10, 11}, {8, 9, 10, 11}};
  parallel::run_ranks(4, [&](Communicator world) {
    const TensorParallel tp{world};
    const HeadShare share(tp, 8, 2);
    EXPECT_EQ(share.first, 2 * world.rank());
    EXPECT_EQ(share.heads(), 2);
    const Tensor mine = slice(reshape(arange(12, DType::f64), {1, 1, 12}), 2, 3 * world.rank(),
                              3 * world.rank() + 3);
    const Tensor packed = share.packed(tp, mine, 1, 1);
    EXPECT_EQ(packed.shape(), (Shape{1, 1, 1, 4, 1}));
    EXPECT_EQ(packed.to_vector(), expected[world.rank()]);
  });
}

TEST(Shares, WholeGroupsNeedNoTraffic) {
  parallel::run_ranks(2, [](Communicator world) {
    const HeadShare share(TensorParallel{world}, 8, 4);
    EXPECT_FALSE(share.shares_group);
    EXPECT_EQ(share.groups, 2);
    EXPECT_EQ(share.per_group, 2);
    EXPECT_EQ(share.first, 4 * world.rank());
    EXPECT_THROW(HeadShare(TensorParallel{world}, 6, 3), Error);
    EXPECT_THROW(HeadShare(TensorParallel{world}, 3, 1), Error);
  });
}

}  // namespace
}  // namespace gradus
