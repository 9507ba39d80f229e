#include "train/checkpoint_directory.h"

#include <gtest/gtest.h>

#include "tests/train/checkpoint_helpers.h"

namespace gradus::train {
namespace {

std::vector<int64_t> steps_in(const std::string& directory) {
  std::vector<int64_t> steps;
  for (const SavedStep& saved : list_checkpoints(directory).complete) steps.push_back(saved.step);
  return steps;
}

TEST(CheckpointDirectory, ListsByStepNotByName) {
  TemporaryDirectory d;
  save(d.path(), 100000000);  // nine digits: its name sorts before the next
  save(d.path(), 20);
  EXPECT_EQ(steps_in(d.path()), (std::vector<int64_t>{20, 100000000}));
}

TEST(CheckpointDirectory, OtherNamesAreNoCheckpoints) {
  TemporaryDirectory d;
  for (const char* name :
       {"step_7", "step_00000007x", "step_-0000007", "steps", "step_0000000000007"})
    std::filesystem::create_directory(d / name);
  EXPECT_TRUE(list_checkpoints(d.path()).complete.empty());
  EXPECT_EQ(list_checkpoints(d.path()).warning(), "");
}

TEST(CheckpointDirectory, NoneIsAnErrorThatSaysWhatIsThere) {
  TemporaryDirectory d;
  std::string text = error_of([&] { latest_step(list_checkpoints(d / "no"), d / "no"); });
  EXPECT_TRUE(holds(text, {"no complete checkpoint in " + d / "no", "does not exist"})) << text;
  std::filesystem::create_directory(d / "step_00000005.tmp");
  text = error_of([&] { latest_step(list_checkpoints(d.path()), d.path()); });
  EXPECT_TRUE(holds(text, {d.path(), "step_00000005.tmp (interrupted)"})) << text;
}

TEST(CheckpointDirectory, TheBestHasTheLowestScore) {
  TemporaryDirectory d;
  save(d.path(), 1);
  EXPECT_EQ(best_step(list_checkpoints(d.path())), std::nullopt);
  save(d.path(), 2, 1.5);
  save(d.path(), 3, 1.25);
  save(d.path(), 4, 1.25);
  save(d.path(), 5, NAN);  // a diverged run is not its own best
  EXPECT_EQ(best_step(list_checkpoints(d.path())), 3);
}

TEST(CheckpointDirectory, PruningKeepsTheNewestAndTheBest) {
  TemporaryDirectory d;
  for (int64_t step = 1; step <= 6; ++step) save(d.path(), step, step == 2 ? 1.0 : 2.0);
  prune_checkpoints(d.path(), 3);
  EXPECT_EQ(steps_in(d.path()), (std::vector<int64_t>{2, 4, 5, 6}));
  prune_checkpoints(d.path(), 1);
  EXPECT_EQ(steps_in(d.path()), (std::vector<int64_t>{2, 6}));
  prune_checkpoints(d.path(), 5);
  EXPECT_EQ(steps_in(d.path()), (std::vector<int64_t>{2, 6}));
  EXPECT_THROW(prune_checkpoints(d.path(), 0), Error);
}

}  // namespace
}  // namespace gradus::train
