#include "train/run_directory.h"

#include <gtest/gtest.h>

#include "tests/train/checkpoint_helpers.h"

namespace gradus::train {
namespace {

namespace fs = std::filesystem;

TEST(RunDirectory, ARunIsNamedAfterItsData) {
  EXPECT_EQ(name_of_data("build/data/kjv.txt"), "kjv");
  EXPECT_EQ(name_of_data("data/fineweb_train_*.bin"), "fineweb_train");
  EXPECT_EQ(name_of_data("/x/*.bin"), "run");
}

TEST(RunDirectory, ANewRunTakesTheFirstFreeNumberAndMakesNothing) {
  TemporaryDirectory d;
  EXPECT_EQ(new_run("", "kjv", d.path()), d / "kjv");
  EXPECT_FALSE(fs::exists(d / "kjv"));
  fs::create_directory(d / "kjv");
  EXPECT_EQ(new_run("", "kjv", d.path()), d / "kjv-2");
  fs::create_directory(d / "kjv-2");
  EXPECT_EQ(new_run("", "kjv", d.path()), d / "kjv-3");
  EXPECT_EQ(existing_run("", "kjv", d.path()), d / "kjv-2");
}

TEST(RunDirectory, ANewRunDoesNotTouchOneThatIsThere) {
  TemporaryDirectory d;
  EXPECT_EQ(new_run(d.path(), "kjv"), d.path());  // exists, but holds no checkpoint
  save(d.path(), 12);
  const std::string error = error_of([&] { new_run(d.path(), "kjv"); });
  EXPECT_TRUE(holds(error, {d.path(), "step 12", "--resume", "--out"})) << error;
}

TEST(RunDirectory, ResumingWhatIsNotThereIsAnError) {
  TemporaryDirectory d;
  const std::string error = error_of([&] { existing_run("", "kjv", d.path()); });
  EXPECT_TRUE(holds(error, {d / "kjv", "does not exist", "--out"})) << error;
  EXPECT_EQ(existing_run("elsewhere", "kjv", d.path()), "elsewhere");
}

TEST(RunDirectory, ACheckpointIsFoundByItselfAndByItsRun) {
  TemporaryDirectory d;
  save(d.path(), 1);
  const std::string two = save(d.path(), 2);
  EXPECT_EQ(find_checkpoint(d.path()), two);
  EXPECT_EQ(find_checkpoint(d / "step_00000001"), d / "step_00000001");
  EXPECT_TRUE(holds(error_of([&] { find_checkpoint(d / "none"); }), {"none", "does not exist"}));
}

}  // namespace
}  // namespace gradus::train
