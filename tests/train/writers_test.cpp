#include "train/writers.h"

#include <gtest/gtest.h>

#include "nn/init.h"

namespace gradus::train {
namespace {

std::string name_of(int64_t i) { return std::string("p") += char('0' + i); }

// Eight parameters, every second one cut over `tp` ranks.
std::vector<nn::NamedParameter> parameters(int rank, int tp) {
  std::vector<nn::NamedParameter> list;
  for (int64_t i = 0; i < 8; ++i) {
    const bool is_cut = i % 2 == 0;
    nn::Shard shard;
    if (is_cut) shard = {.dim = 0, .rank = rank, .ranks = tp};
    list.push_back({name_of(i),
                    nn::Parameter({is_cut ? 24 / tp : 24, i + 1}, nn::init::zeros(), shard)});
  }
  return list;
}

TEST(Writers, WhatSeveralRanksHoldHasOneWriter) {
  for (int tp : {1, 2, 4})
    for (int dp : {1, 2, 3}) {
      std::vector<int64_t> load(size_t(tp * dp), 0);
      for (int64_t i = 0; i < 8; ++i) {
        int writers = 0, writers_of_slices = 0;
        for (int t = 0; t < tp; ++t)
          for (int d = 0; d < dp; ++d) {
            const auto mine = parameters(t, tp);
            const Writers all(mine, tp, dp);
            const bool writes = all.writes(name_of(i), t, d, false);
            if (writes) load[size_t(d * tp + t)] += mine[size_t(i)].parameter.numel();
            writers += writes;
            writers_of_slices += all.writes(name_of(i), t, d, true);
          }
        EXPECT_EQ(writers, i % 2 == 0 ? tp : 1) << "tp " << tp << " dp " << dp << " p" << i;
        EXPECT_EQ(writers_of_slices, i % 2 == 0 ? tp * dp : dp);
      }
      // Given out largest first to whoever has least, nobody has more than the mean and one parameter.
      int64_t most = 0, sum = 0;
      for (const int64_t l : load) most = std::max(most, l), sum += l;
      EXPECT_LE(most, sum / (tp * dp) + 24 * 8);
    }
}

}  // namespace
}  // namespace gradus::train
