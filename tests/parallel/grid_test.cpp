// A8: the worked examples of grids, random shapes against coordinates that are counted up, and every error.
#include "parallel/grid.h"

#include <random>
#include <set>

#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

TEST(GridShape, TwoByTwoByTwo) {
  const GridShape g({{"a", 2}, {"b", 2}, {"c", 2}}, 8);
  EXPECT_EQ(g.groups({"a"}), (RankLists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(g.groups({"b"}), (RankLists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(g.groups({"a", "b"}), (RankLists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(g.groups({"a", "c"}), (RankLists{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  // The order in which axes are written does not matter: not {0, 2, 1, 3}.
  EXPECT_EQ(g.groups({"b", "a"}), (RankLists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(g.in_order({"c", "a"}), (Names{"a", "c"}));
  EXPECT_EQ(g.groups({}).size(), 8u);
}

TEST(GridShape, OrdersOfPipelineAndData) {
  const GridShape pp_slowest({{"tp", 2}, {"cp", 1}, {"dp", 2}, {"pp", 2}}, 8);
  EXPECT_EQ(pp_slowest.groups({"dp"}), (RankLists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(pp_slowest.groups({"pp"}), (RankLists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  const GridShape dp_slowest({{"tp", 2}, {"cp", 1}, {"pp", 2}, {"dp", 2}}, 8);
  EXPECT_EQ(dp_slowest.groups({"pp"}), (RankLists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(dp_slowest.groups({"dp"}), (RankLists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(GridShape, ContextAndDataTogether) {
  const GridShape g({{"tp", 2}, {"cp", 2}, {"dp", 2}}, 8);
  EXPECT_EQ(g.groups({"cp", "dp"}), (RankLists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

TEST(GridShape, AnOffset) {
  const GridShape g({{"tp", 2}, {"cp", 1}, {"pp", 3}, {"dp", 1}}, 8, 2);
  EXPECT_EQ(g.groups({"tp"}), (RankLists{{2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(g.groups({"pp"}), (RankLists{{2, 4, 6}, {3, 5, 7}}));
  EXPECT_FALSE(g.contains(1));
  EXPECT_TRUE(g.contains(2));
  EXPECT_TRUE(g.contains(7));
  EXPECT_FALSE(g.contains(8));
}

TEST(GridShape, EndsOfPipelines) {
  const GridShape g({{"tp", 2}, {"pp", 3}}, 6);
  EXPECT_EQ(g.places("pp", {2, 0}), (RankLists{{0, 4}, {1, 5}}));
  const GridShape one({{"tp", 2}, {"pp", 1}}, 2);
  EXPECT_EQ(one.places("pp", {0, 0}), (RankLists{{0}, {1}}));
}

// Coordinates by counting up, first axis fastest, as an odometer does.
std::vector<std::vector<int>> odometer(const std::vector<Axis>& axes, int size) {
  std::vector<std::vector<int>> all;
  std::vector<int> c(axes.size());
  for (int i = 0; i < size; ++i) {
    all.push_back(c);
    for (size_t k = 0; k < c.size() && ++c[k] == axes[k].size; ++k) c[k] = 0;
  }
  return all;
}

TEST(GridShape, RandomShapesAgreeWithBruteForce) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return int(random() % unsigned(n)); };
  for (int round = 0; round < 60; ++round) {
    std::vector<Axis> axes;
    int size = 1;
    for (int i = 0; i < 1 + below(4); ++i) {
      axes.push_back({std::string(1, char('a' + i)), 1 + below(4)});
      size *= axes.back().size;
    }
    const int offset = below(5);
    const GridShape g(axes, offset + size + below(3), offset);
    ASSERT_EQ(g.size(), size);
    const auto coordinates = odometer(axes, size);
    Names along;
    for (const Axis& a : axes)
      if (below(2)) along.insert(along.begin() + below(int(along.size()) + 1), a.name);

    const auto same_group = [&](int r, int s) {
      for (size_t i = 0; i < axes.size(); ++i)
        if (std::find(along.begin(), along.end(), axes[i].name) == along.end() &&
            coordinates[size_t(r)][i] != coordinates[size_t(s)][i])
          return false;
      return true;
    };
    RankLists expected;
    std::set<int> seen;
    for (int r = 0; r < size; ++r) {
      for (size_t i = 0; i < axes.size(); ++i)
        ASSERT_EQ(g.coordinate(offset + r, axes[i].name), coordinates[size_t(r)][i]);
      if (seen.contains(r)) continue;
      expected.emplace_back();
      for (int s = r; s < size; ++s)
        if (same_group(r, s)) {
          expected.back().push_back(offset + s);
          EXPECT_TRUE(seen.insert(s).second) << "rank " << s << " is in two groups";
        }
    }
    EXPECT_EQ(int(seen.size()), size);
    EXPECT_EQ(g.groups(along), expected);
  }
}

TEST(GridShape, Errors) {
  const auto made = [](std::vector<Axis> axes, int world, int offset = 0) {
    return [=] { GridShape(axes, world, offset, "expert"); };
  };
  expect_error([] { axes_of({"tp", "dp"}, {2}); }, {"2 names", "1 sizes"});
  EXPECT_EQ(axes_of({"tp", "dp"}, {2, 3})[1].size, 3);
  expect_error(made({}, 4), {"a grid needs an axis: expert has none"});
  expect_error(made({{"tp", 0}}, 4), {"axis tp of expert has size 0"});
  expect_error(made({{"tp", 2}, {"dp", -2}}, 4), {"axis dp of expert has size -2"});
  expect_error(made({{"tp", 2}}, 4, -1), {"the offset of expert is -1"});
  expect_error(made({{"tp", 2}, {"dp", 2}}, 4, 1), {"ask for 4 ranks", "from rank 1 on: 3"});
  expect_error(made({{"a", 1 << 20}, {"b", 1 << 20}, {"c", 1 << 20}}, 4), {"ask for"});
  expect_error(made({{"tp", 2}, {"tp", 2}}, 4), {"axis tp is named twice in expert"});
  const GridShape g({{"tp", 2}, {"dp", 2}}, 5, 1, "expert");
  expect_error([&] { g.groups({"pp"}); }, {"no axis pp in expert, which has tp, dp"});
  expect_error([&] { g.groups({"tp", "tp"}); }, {"axis tp is named twice in expert"});
  expect_error([&] { g.axis_size("ep"); }, {"no axis ep in expert"});
  expect_error([&] { g.coordinate(5, "tp"); }, {"rank 5 is outside of expert (ranks 1 to 4)"});
  expect_error([&] { g.places("tp", {2}); }, {"place 2 on axis tp", "size is 2"});
}

TEST(GridShape, SeveralGridsTileTheWorld) {
  const auto grid = [](int size, int offset) {
    return GridShape({{"dp", size}}, 8, offset, "grid at " + std::to_string(offset));
  };
  check_tiling({grid(8, 0)}, 8);
  check_tiling({grid(3, 0), grid(5, 3)}, 8);
  check_tiling({grid(3, 0), grid(5, 3), GridShape({{"tp", 5}}, 8, 3)}, 8);  // equal spans
  expect_error(
      [&] {
        check_tiling({grid(4, 0), grid(5, 3)}, 8);
      },
      {"overlap in part: grid at 0 (ranks 0 to 3) and grid at 3 (ranks 3 to 7)"});
  expect_error([&] { check_tiling({grid(8, 0), grid(5, 3)}, 8); }, {"overlap in part"});
  expect_error([&] { check_tiling({grid(3, 0), grid(4, 4)}, 8); }, {"rank 3 of 8 is in no grid"});
  expect_error([&] { check_tiling({grid(3, 0), grid(5, 3)}, 9); }, {"rank 8 of 9 is in no grid"});
  expect_error([&] { check_tiling({grid(8, 0)}, 7); }, {"reaches beyond the world", "of 7 ranks"});
}

}  // namespace
}  // namespace gradus::parallel
