#include "core/index_map.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradus {
namespace {

std::vector<uint64_t> first(const IndexMap& map, uint64_t n) {
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < n; ++i) all.push_back(map(i));
  return all;
}

TEST(IndexMap, ByHand) {
  using Indices = std::vector<uint64_t>;
  EXPECT_EQ(first({}, 3), (Indices{0, 1, 2}));
  EXPECT_EQ(first({.first = 40}, 3), (Indices{40, 41, 42}));
  EXPECT_EQ(first({.first = 2, .run = 2, .stride = 6}, 6), (Indices{2, 3, 8, 9, 14, 15}));
  EXPECT_EQ(first({.first = uint64_t(1) << 40, .run = 1, .stride = 3}, 2),
            (Indices{uint64_t(1) << 40, (uint64_t(1) << 40) + 3}));
}

TEST(IndexMap, KnowsHowManyLieSideBySide) {
  EXPECT_EQ(IndexMap{.first = 7}.side_by_side(5, 100), 100);
  const IndexMap map{.first = 2, .run = 3, .stride = 6};
  for (uint64_t i : {0, 1, 2, 3, 7}) {
    const int64_t n = map.side_by_side(i, 100);
    EXPECT_EQ(map(i + uint64_t(n) - 1), map(i) + uint64_t(n) - 1) << i;
    EXPECT_NE(map(i + uint64_t(n)), map(i) + uint64_t(n)) << i;
    EXPECT_EQ(map.side_by_side(i, 1), 1);
  }
}

// Where fours stay fours, one run of the cipher serves four elements.
TEST(IndexMap, KnowsWhetherGroupsStayGroups) {
  EXPECT_TRUE(IndexMap{}.keeps(4));
  EXPECT_TRUE((IndexMap{.first = 4, .run = 8, .stride = 12}.keeps(4)));
  for (const IndexMap& map : {IndexMap{.first = 2}, IndexMap{.first = 4, .run = 6, .stride = 12},
                              IndexMap{.first = 4, .run = 8, .stride = 10}})
    EXPECT_FALSE(map.keeps(4));
}

TEST(IndexMap, OverlappingRunsAreRefused) {
  EXPECT_NO_THROW(check_map("op", {.first = 5}));
  EXPECT_NO_THROW(check_map("op", {.run = 4, .stride = 4}));
  for (const IndexMap& map : {IndexMap{.run = 4, .stride = 3}, IndexMap{.run = -1, .stride = 3}})
    try {
      check_map("dropout", map);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("every 3"), std::string::npos) << e.what();
    }
}

}  // namespace
}  // namespace gradus
