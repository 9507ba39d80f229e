// A training run on many ranks: what it shows and saves does not depend on how many there are.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "parallel/run_ranks.h"
#include "tests/train/tiny_run.h"
#include "train/layouts.h"

namespace gradus::train {
namespace {

using parallel::Communicator;

Settings many(const TemporaryDirectory& d, const std::string& family, int64_t tp, int64_t dp,
              bool zero) {
  Settings s = tiny_settings(d, family);
  s.dtype = "f64", s.tp = tp, s.dp = dp, s.zero = zero, s.sp = tp > 1;
  s.accumulate = dp < 4 ? 2 : 1;
  s.kv_heads = 2;
  return s;
}

// Runs from the newest checkpoint of the directory, if it has any, on ranks that are threads.
struct ManyOutcome : Outcome {
  std::string shown;  // by the first rank
};
ManyOutcome run_many(Settings s, const std::string& directory, TrainerOptions options = {}) {
  ManyOutcome first;
  use_threads(1);
  const RunData data = open_data(s);
  parallel::run_ranks(int(s.tp * s.dp), [&](const Communicator& world) {
    RunState state(s, kCpu, nullptr, Ranks(world, s));
    const CheckpointList list = list_checkpoints(directory);
    world.barrier();
    if (!list.complete.empty())
      state.load(CheckpointReader(checkpoint_path(directory, list.complete.back().step)));
    if (world.rank() == 0) Disk{}.make_directory(directory);
    std::ostringstream shown;
    ProgressDisplay display(shown, [] { return 0; });
    TrainerOptions mine = options;
    mine.directory = directory;
    const Outcome outcome =
        Trainer(s, *data.training, *data.validation, state, display, mine).run();
    if (world.rank() == 0) first = {outcome, shown.str()};
  });
  use_threads(0);
  return first;
}

std::string difference(const std::string& a, const std::string& b, double bound) {
  const auto report =
      diff(CheckpointReader(a), CheckpointReader(b), {.kind = "parameters", .bound = bound});
  std::ostringstream text;
  print(text, report, true);
  return report.agrees() ? "" : text.str();
}

// A6, C6, C8: seven steps on some ranks, the rest on others, as if on one. Adam divides by the size of
// gradients, so what rounding leaves (1e-15) can grow by some orders in twelve steps.
TEST(ManyRanks, A6_ARunGoesOnAtEveryOtherLayout) {
  TemporaryDirectory d;
  const std::string whole = run_many(many(d, "llama", 1, 1, false), d / "whole").checkpoint;
  const auto metrics = metrics_of(d / "whole");
  struct Layout {
    int64_t tp, dp;
    bool zero;
  };
  const Layout layouts[] = {
      {1, 1, false}, {2, 1, false}, {1, 4, true}, {2, 2, true}, {1, 2, false}};
  for (const Layout& a : layouts)
    for (const Layout& b : {layouts[0], layouts[3], layouts[4]}) {
      SCOPED_TRACE(testing::Message() << "tp " << a.tp << " dp " << a.dp << " zero " << a.zero
                                      << " to tp " << b.tp << " dp " << b.dp);
      const std::string parts = d / "parts";
      EXPECT_FALSE(run_many(many(d, "llama", a.tp, a.dp, a.zero), parts, {.stop_at = 7}).finished);
      const Outcome outcome = run_many(many(d, "llama", b.tp, b.dp, b.zero), parts);
      ASSERT_TRUE(outcome.finished);
      EXPECT_EQ(difference(whole, outcome.checkpoint, 1e-10), "");
      const auto again = metrics_of(parts);
      ASSERT_EQ(again.size(), metrics.size());
      for (size_t i = 0; i < metrics.size(); ++i)
        for (const auto& [name, value] : metrics[i].items())
          EXPECT_NEAR(again[i].at(name).get<double>(), value.get<double>(),
                      1e-9 * std::abs(value.get<double>()))
              << name << " of step " << i + 1;
      std::filesystem::remove_all(parts);
    }
}

// What several ranks hold is stored once, padding not at all: all layouts store the same tensors.
TEST(ManyRanks, CheckpointsHaveTheSameTensorsInEveryLayout) {
  TemporaryDirectory d;
  Settings s = many(d, "gpt2", 1, 1, false);
  s.vocabulary = 257;  // more than the bytes, and prime
  s.steps = 2;
  const CheckpointReader alone(run_many(s, d / "alone").checkpoint);
  s.tp = s.dp = 2, s.zero = s.sp = true;
  const CheckpointReader cut(run_many(s, d / "cut").checkpoint);
  cut.verify();
  std::set<std::string> files;
  ASSERT_EQ(cut.index().tensors.size(), alone.index().tensors.size());
  for (const auto& [name, tensor] : alone.index().tensors) {
    ASSERT_TRUE(cut.index().tensors.contains(name)) << name;
    EXPECT_EQ(cut.index().tensors.at(name).shape, tensor.shape) << name;
    for (const StoredBox& box : cut.index().tensors.at(name).boxes) files.insert(box.file);
  }
  EXPECT_EQ(files.size(), 4u);
  EXPECT_EQ(alone.index().tensors.at("tokens.weight").shape, (Shape{257, 16}));
}

// C9: a disk that fails on one rank fails the save on all, which say so alike, and goes on.
TEST(ManyRanks, C9_AFailingDiskOfOneRankLeavesTheEarlierCheckpoint) {
  TemporaryDirectory d;
  const Settings s = many(d, "gpt2", 2, 2, true);
  const Disk failing{.hook = [](const char* operation, const std::string& path) {
    if (operation == std::string("write") && path.find("step_00000010.tmp/rank_2") != path.npos)
      fail("no space for ", path);
  }};
  const ManyOutcome outcome = run_many(s, d / "run", {.disk = failing});
  EXPECT_TRUE(outcome.finished);
  EXPECT_TRUE(holds(outcome.shown, {"step 10 is not saved: rank 2: no space for", "the newest is ",
                                    "step_00000005", "; training goes on"}))
      << outcome.shown;
  std::vector<int64_t> steps;
  for (const SavedStep& saved : list_checkpoints(d / "run").complete) steps.push_back(saved.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 12}));
  EXPECT_EQ(difference(run_many(many(d, "gpt2", 1, 1, false), d / "one").checkpoint,
                       outcome.checkpoint, 1e-10),
            "");
}

// C1, C9: whichever file operation of whichever rank fails, all ranks get the Error, and what is in the
// directory is whole: the checkpoint before, and the new one if it was published.
TEST(ManyRanks, C9_AFailureAtAnyFileOperationLeavesWholeCheckpoints) {
  TemporaryDirectory d;
  Settings s = many(d, "gpt2", 2, 2, true);
  s.layers = 1;
  std::atomic<int> left = 0;  // operations until one fails
  const Disk failing{.hook = [&](const char* operation, const std::string& path) {
    if (left-- == 0) fail("", operation, " of ", path, " fails");
  }};
  use_threads(1);
  const RunData data = open_data(s);
  parallel::run_ranks(4, [&](const Communicator& world) {
    RunState state(s, kCpu, nullptr, Ranks(world, s));
    const auto save = [&](int64_t step, int operations) {
      world.barrier();
      left = operations;
      world.barrier();
      state.step = step;
      return error_of([&] { state.save(d / "run", s, {}, {}, failing); });
    };
    ASSERT_EQ(save(1, 1000), "no error");
    int failures = 0;
    for (std::string error; error != "no error"; ++failures) {
      error = save(2 + failures, failures);
      EXPECT_EQ(error, from_first(world, error)) << "on rank " << world.rank();
      if (world.rank() > 0) continue;
      const CheckpointList list = list_checkpoints(d / "run");
      ASSERT_FALSE(list.complete.empty());
      for (const SavedStep& saved : list.complete)
        CheckpointReader(checkpoint_path(d / "run", saved.step)).verify();
    }
    EXPECT_GT(failures, 20);
  });
  use_threads(0);
}

// H7: an Error of one rank ends all, and says whose it was. At the last step a save must succeed.
TEST(ManyRanks, H7_AnErrorOfOneRankEndsAll) {
  TemporaryDirectory d;
  const Settings s = many(d, "gpt2", 1, 4, false);
  const Disk failing{.hook = [](const char* operation, const std::string& path) {
    if (operation == std::string("write") && path.find("step_00000012.tmp/rank_3") != path.npos)
      fail("no space for ", path);
  }};
  const std::string error = error_of([&] { run_many(s, d / "run", {.disk = failing}); });
  EXPECT_TRUE(holds(error, {"step 12", "rank 3", "no space", "step_00000010"})) << error;
}

// H7: a rank that hangs within a step is missed soon.
TEST(ManyRanks, H7_ARankThatHangsIsNamed) {
  TemporaryDirectory d;
  std::atomic<int> asked = 0;
  const auto hang = [&] {
    if (++asked == 40) std::this_thread::sleep_for(std::chrono::seconds(3));
    return false;
  };
  const Settings s = many(d, "gpt2", 2, 2, false);
  const std::string error =
      error_of([&] { run_many(s, d / "run", {.stop = hang, .patience = 0.5}); });
  EXPECT_TRUE(holds(error, {"has waited for ", " s in all_gather", "; not there: rank "})) << error;
}

// One that saves is not missed, though it takes longer than that.
TEST(ManyRanks, ARankThatSavesIsWaitedFor) {
  TemporaryDirectory d;
  Settings s = many(d, "gpt2", 1, 2, false);
  s.steps = 6;
  const Disk slow{.hook = [](const char* operation, const std::string& path) {
    if (operation == std::string("rename") && path.find("step_00000005") != path.npos)
      std::this_thread::sleep_for(std::chrono::seconds(2));
  }};
  EXPECT_TRUE(run_many(s, d / "run", {.patience = 0.2, .disk = slow}).finished);
}

// One rank that is asked to stop stops all, after the same step.
TEST(ManyRanks, OneRankThatIsAskedStopsAll) {
  TemporaryDirectory d;
  const Settings s = many(d, "gpt2", 2, 2, false);
  std::atomic<int> asked = 0;
  const Outcome outcome = run_many(s, d / "run", {.stop = [&] { return ++asked == 10; }});
  EXPECT_FALSE(outcome.finished);
  // Four ranks ask before each step: the tenth question is of the third round.
  EXPECT_EQ(outcome.checkpoint, d / "run/step_00000002");
}

TEST(ManyRanks, NumbersOfRanksThatDoNotFitAreErrors) {
  TemporaryDirectory d;
  Settings s = many(d, "gpt2", 1, 3, false);
  std::string error = error_of([&] { validate(s); });
  EXPECT_TRUE(holds(error, {"--batch 4", "--accumulate 2 × --dp 3", "6 would"})) << error;
  s.dp = 1, s.tp = 4;
  error = error_of([&] { validate(s); });
  EXPECT_TRUE(holds(error, {"--heads 2", "--tp 4"})) << error;
  s.tp = 2;
  const Choices none;
  error = error_of([&] { settle_ranks(s, none, {.ranks = 3, .micro_batch = {}}); });
  EXPECT_TRUE(holds(error, {"--ranks 3", "--tp 2"})) << error;
  settle_ranks(s, none, {.ranks = 4, .micro_batch = 1});
  EXPECT_EQ(s.dp, 2);
  EXPECT_EQ(s.accumulate, 2);
  Choices some;
  some.accumulate = 4;
  error = error_of([&] { settle_ranks(s, some, {.ranks = {}, .micro_batch = 2}); });
  EXPECT_TRUE(holds(error, {"--micro-batch 2", "--accumulate 1", "not 4"})) << error;
}

}  // namespace
}  // namespace gradus::train
