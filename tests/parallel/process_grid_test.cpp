#include "parallel/process_grid.h"

#include "ops/ops.h"
#include "parallel/group.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

/// That the group is what the shape says, and that its ranks really meet.
void expect_group(const Communicator& group, const RankLists& lists, int me) {
  for (const std::vector<int>& list : lists) {
    const auto place = std::find(list.begin(), list.end(), me);
    if (place == list.end()) continue;
    EXPECT_EQ(group.world_ranks(), list);
    EXPECT_EQ(group.rank(), place - list.begin());
    const Tensor all = group.all_gather(full({1}, me));
    for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(all.at(int64_t(i)), list[i]);
    return;
  }
  ADD_FAILURE() << "rank " << me << " is in none of the groups";
}

TEST(ProcessGrid, GroupsMeetInTheOrderOfTheGrid) {
  run_ranks(8, [](Communicator world) {
    ProcessGrid grid(world, {{"tp", 2}, {"cp", 2}, {"dp", 2}});
    const Names all[] = {{"tp"}, {"cp"}, {"dp"}, {"dp", "cp"}, {"tp", "dp"}, {"dp", "tp", "cp"}};
    for (const Names& along : all) {
      grid.create(along);
      expect_group(grid.group(along), grid.shape().groups(along), world.rank());
    }
    EXPECT_TRUE(grid.group({"tp", "dp"}) == grid.group({"dp", "tp"}));
    EXPECT_FALSE(grid.group({"tp"}) == grid.group({"dp"}));
    EXPECT_EQ(grid.group({"cp", "dp"}).describe(),
              world.rank() % 2 ? "cp+dp of ranks 1, 3, 5, 7" : "cp+dp of ranks 0, 2, 4, 6");
    EXPECT_EQ(grid.size("cp"), 2);
    EXPECT_EQ(grid.place("cp"), world.rank() / 2 % 2);
    EXPECT_TRUE(grid.contains_me());
  });
}

// World 8, tp 4: the all-reduce of each rank's own number gives 6 on ranks 0–3 and 22 on ranks 4–7;
// a reduce-scatter of four rows, row k full of k on all ranks, gives 4 times the rank's place.
TEST(ProcessGrid, OracleOfCollectives) {
  run_ranks(8, [](Communicator world) {
    ProcessGrid grid(world, {{"tp", 4}, {"dp", 2}});
    grid.create({"tp"});
    const Communicator tp = grid.group({"tp"});
    EXPECT_EQ(tp.all_reduce(full({1}, world.rank())).item(), world.rank() < 4 ? 6 : 22);
    const Tensor rows = tensor({0, 0, 1, 1, 2, 2, 3, 3}, {4, 2});
    const Tensor mine = tp.reduce_scatter(rows);
    EXPECT_EQ(mine.shape(), (Shape{1, 2}));
    EXPECT_EQ(mine.at(1), 4 * grid.place("tp"));
  });
}

TEST(ProcessGrid, RanksOutsideTakePartInMaking) {
  run_ranks(8, [](Communicator world) {
    ProcessGrid grid(world, {{"tp", 2}, {"pp", 3}}, 2);
    grid.create({"tp"});
    grid.create_from("ends", grid.shape().places("pp", {0, 2}));
    EXPECT_EQ(grid.contains_me(), world.rank() >= 2);
    EXPECT_EQ(grid.is_in("ends"), world.rank() >= 2 && grid.place("pp") != 1);
    if (grid.is_in("ends")) {
      expect_group(grid.group_from("ends"), {{2, 6}, {3, 7}}, world.rank());
    } else {
      expect_error([&] { grid.group_from("ends"); }, {"is in none of the groups ends"});
    }
    if (world.rank() < 2)
      expect_error([&] { grid.group({"tp"}); }, {"is outside of the grid"});
    else
      expect_group(grid.group({"tp"}), {{2, 3}, {4, 5}, {6, 7}}, world.rank());
  });
}

TEST(ProcessGrid, AViewSharesGroups) {
  run_ranks(8, [](Communicator world) {
    ProcessGrid grid(world, {{"tp", 2}, {"cp", 1}, {"dp", 2}, {"pp", 2}});
    grid.view("expert", {{"etp", 1}, {"ep", 4}, {"edp", 1}, {"pp", 2}}, {"pp"});
    grid.create({"pp"}, "expert");
    grid.create({"ep"}, "expert");
    grid.create({"ep", "pp"}, "expert");
    EXPECT_TRUE(grid.group({"pp"}) == grid.group({"pp"}, "expert"));
    expect_group(grid.group({"pp"}), {{0, 4}, {1, 5}, {2, 6}, {3, 7}}, world.rank());
    expect_group(grid.group({"ep"}, "expert"), {{0, 1, 2, 3}, {4, 5, 6, 7}}, world.rank());
    EXPECT_EQ(grid.group({"ep"}, "expert").describe(),
              world.rank() < 4 ? "expert:ep of ranks 0 to 3" : "expert:ep of ranks 4 to 7");
    expect_error([&] { grid.group({"ep"}); }, {"no axis ep in grid"});
    expect_error([&] { grid.group({"dp"}, "expert"); }, {"no axis dp in expert"});
  });
}

TEST(ProcessGrid, ViewErrors) {
  run_ranks(8, [](Communicator world) {
    ProcessGrid grid(world, {{"tp", 2}, {"cp", 2}, {"pp", 2}});
    const auto view = [&](std::vector<Axis> axes, const Names& shared) {
      return [&grid, axes, shared] { grid.view("expert", axes, shared); };
    };
    expect_error(view({{"ep", 4}}, {}), {"view expert has 4 ranks, but the grid has 8"});
    expect_error(view({{"ep", 4}, {"pp", 2}}, {"tp"}),
                 {"axis tp is to be shared, but is not in expert"});
    expect_error(view({{"ep", 4}, {"pp", 2}}, {"ep"}),
                 {"axis ep is to be shared, but is not in grid"});
    // The same name and size, but other ranks.
    expect_error(view({{"pp", 2}, {"ep", 4}}, {"pp"}),
                 {"groups along pp", "other ranks in view expert"});
    expect_error(view({{"tp", 4}, {"pp", 2}}, {"pp", "tp"}), {"groups along tp"});
    expect_error(view({{"ep", 4}, {"ep", 2}}, {}), {"axis ep is named twice in expert"});
    grid.view("expert", {{"tp", 2}, {"ep", 2}, {"pp", 2}}, {"tp", "pp"});
    expect_error(view({{"ep", 8}}, {}), {"there is a view expert"});
    expect_error([&] { grid.view("grid", {{"ep", 8}}, {}); }, {"there is a view grid"});
    expect_error([&] { grid.create({"ep"}, "experts"); }, {"no view experts"});
    grid.create({"pp", "tp"}, "expert");
    EXPECT_TRUE(grid.group({"tp", "pp"}) == grid.group({"tp", "pp"}, "expert"));
  });
}

TEST(ProcessGrid, GroupsAreAskedForAfterTheyWereCreated) {
  run_ranks(2, [](Communicator world) {
    ProcessGrid grid(world, {{"tp", 1}, {"dp", 2}});
    expect_error([&] { grid.group({"dp"}); }, {"group dp of grid was asked for, but not created"});
    expect_error([&] { grid.group_from("ends"); }, {"group ends was asked for, but not created"});
    grid.create({"dp"});
    EXPECT_EQ(grid.group({"dp"}).size(), 2);
    expect_error([&] { grid.create_from("ends", {{0, 1}, {1}}); }, {"rank 1 is in two of them"});
    expect_error([&] { grid.create_from("ends", {{0, 2}}); }, {"outside of the world of 2"});
    grid.create_from("ends", {{1, 0}});  // in the order that is written
    EXPECT_EQ(grid.group_from("ends").rank(), 1 - world.rank());
    expect_error([&] { grid.create_from("ends", {{0}}); },
                 {"there are groups called ends already"});
    grid.destroy();
    expect_error([&] { grid.group({"dp"}); }, {"not created"});
  });
}

/// A rank's end of groups that counts how many of them there are; none of its peers exists.
class CountedGroup final : public Group {
 public:
  CountedGroup(std::string name, int rank, std::vector<int> ranks, int& made, int& alive)
      : Group(std::move(name), rank, std::move(ranks)), made_(made), alive_(alive) {
    ++made_;
    ++alive_;
  }
  ~CountedGroup() override { --alive_; }
  void all_reduce(const Tensor&, Reduce) override {}
  void broadcast(const Tensor&, int) override {}
  void all_gather(const Tensor&, const Tensor&) override {}
  void reduce_scatter(const Tensor&, const Tensor&) override {}
  void all_to_all(const Tensor&, const Tensor&) override {}
  void send(const Tensor&, int, int) override {}
  void receive(const Tensor&, int, int) override {}
  void barrier() override {}
  std::shared_ptr<Group> split(int color, int, const std::string& name) override {
    if (color < 0) return nullptr;
    return std::make_shared<CountedGroup>(name, 0, std::vector<int>{0}, made_, alive_);
  }

 private:
  int& made_;
  int& alive_;
};

TEST(ProcessGrid, EachGroupIsMadeAndFreedOnce) {
  int made = 0, alive = 0;
  const Communicator world(
      std::make_shared<CountedGroup>("world", 5, std::vector<int>{0, 1, 2, 3, 4, 5}, made, alive));
  ProcessGrid grid(world, {{"tp", 2}, {"cp", 1}, {"dp", 2}}, 2);
  grid.view("expert", {{"ep", 2}, {"dp", 2}}, {"dp"});
  EXPECT_EQ(made, 1);
  grid.create({"dp"});
  grid.create({"dp"});            // again
  grid.create({"dp"}, "expert");  // shared
  grid.create({"dp", "cp"});      // the same ranks
  EXPECT_EQ(made, 2);
  grid.create({"tp"});
  grid.create({"ep"}, "expert");  // the same ranks as tp
  grid.create_from("elsewhere", {{0, 1}});
  EXPECT_EQ(made, 3);
  grid.destroy();
  EXPECT_EQ(alive, 1);
  grid.destroy();
  EXPECT_EQ(alive, 1);
}

TEST(ProcessGrid, TheGridOfAModel) {
  run_ranks(8, [](Communicator world) {
    ProcessGrid grid = model_grid(world, {.tp = 2, .pp = 2});
    EXPECT_EQ(grid.size("dp"), 2);
    for (const Names& along : {Names{"tp"},
                               {"cp"},
                               {"dp"},
                               {"pp"},
                               {"dp", "cp"},
                               {"tp", "cp"},
                               {"tp", "pp"},
                               {"tp", "dp"},
                               {"tp", "dp", "cp"},
                               {"tp", "dp", "cp", "pp"}})
      expect_group(grid.group(along), grid.shape().groups(along), world.rank());
    expect_group(grid.group({"dp"}), {{0, 2}, {1, 3}, {4, 6}, {5, 7}}, world.rank());
    EXPECT_TRUE(grid.group({"dp"}) == grid.group({"cp", "dp"}));
    expect_error([&] { model_grid(world, {.tp = 3}); }, {"3 · 1 · 1 does not divide the 8 ranks"});
    expect_error([&] { model_grid(world, {.tp = 0}); }, {"positive"});
  });
  const ProcessGrid one = model_grid(Communicator(), {});
  EXPECT_EQ(one.group({"tp"}).size(), 1);
  EXPECT_EQ(one.place("dp"), 0);
}

}  // namespace
}  // namespace gradus::parallel
