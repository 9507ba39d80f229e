// Checkpoints under attack: killed saves, full disks, altered files.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "tests/train/checkpoint_helpers.h"

namespace gradus::train {
namespace {

// Runs `f` in a child process; the signal that ended it, 0 for a normal end with status 0.
template <class F>
int in_child(F&& f) {
  const pid_t child = fork();
  if (child == 0) {
    f();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

// A disk that kills its process at its operation number `fatal`, in writes also between the pieces.
Disk deadly_disk(int fatal) {
  return {[fatal, n = std::make_shared<int>(0)](const char*, const std::string&) {
            if ((*n)++ == fatal) raise(SIGKILL);
          },
          64};
}

Disk failing_disk(int fatal) {
  return {[fatal, n = std::make_shared<int>(0)](const char* operation, const std::string& path) {
            if ((*n)++ == fatal) fail("cannot ", operation, " ", path, ": planned by the test");
          },
          64};
}

// Saves step 200, keeping two, after 50 and 100; 50 has to go then.
void save_and_prune(const std::string& directory, const Disk& disk) {
  save(directory, 200, 1.5, disk);
  prune_checkpoints(directory, 2, disk);
}

// After whatever happened: the newest complete step is 100 or 200, and loads; the next save works and
// leaves nothing behind.
int64_t check_intact(const std::string& directory) {
  const auto list = list_checkpoints(directory);
  const int64_t latest = latest_step(list, directory);
  EXPECT_TRUE(latest == 100 || latest == 200);
  for (const SavedStep& saved : list.complete)
    EXPECT_EQ(load(checkpoint_path(directory, saved.step)), SmallModel::at(saved.step));
  for (const std::string& name : list.incomplete)
    EXPECT_TRUE(holds(list.warning(), {"step_00000", "(interrupted)"})) << name;

  save(directory, 300);
  EXPECT_EQ(list_checkpoints(directory).warning(), "");
  EXPECT_EQ(read_text(directory + "/latest"), "step_00000300\n");
  return latest;
}

TEST(CheckpointDamage, C1_AKillAtEveryFileOperationLeavesTheRunIntact) {
  int operation = 0, before = 0, after = 0;
  for (bool killed = true; killed; ++operation) {
    TemporaryDirectory d;
    save(d.path(), 50);
    save(d.path(), 100);
    killed = in_child([&] { save_and_prune(d.path(), deadly_disk(operation)); }) == SIGKILL;
    SCOPED_TRACE("operation " + std::to_string(operation));
    ++(check_intact(d.path()) == 100 ? before : after);
  }
  // Both sides of the rename were met: directories, three files in pieces, syncs, the rename; then
  // `latest` and the removal of step 50.
  EXPECT_GE(before, 25);
  EXPECT_GE(after, 10);
}

// A power cut loses what was not synced: every file of the checkpoint and its directory must be, before
// the rename that publishes it, and the directory above after.
TEST(CheckpointDamage, C1_EverythingIsSyncedBeforeItIsPublished) {
  TemporaryDirectory d;
  std::vector<std::string> unsynced, log;
  save(d.path(), 1, {}, Disk{[&](const std::string& operation, const std::string& path) {
         if (operation == "create" || operation == "make directory") unsynced.push_back(path);
         if (operation == "sync") std::erase(unsynced, path);
         if (operation == "rename" && path == d / "step_00000001.tmp") {
           EXPECT_EQ(unsynced, std::vector<std::string>{d.path()});
           unsynced = {d.path()};
         }
         log.push_back(operation + " " + path);
       }});
  EXPECT_TRUE(unsynced.empty());
  EXPECT_EQ(std::count(log.begin(), log.end(), "rename " + d / "step_00000001.tmp"), 1);
}

TEST(CheckpointDamage, C9_AFailureOfEveryFileOperationIsAnErrorAndLeavesTheRunIntact) {
  bool failed = true;
  for (int operation = 0; failed; ++operation) {
    TemporaryDirectory d;
    save(d.path(), 50);
    save(d.path(), 100);
    const std::string text = error_of([&] { save_and_prune(d.path(), failing_disk(operation)); });
    failed = text != "no error";
    SCOPED_TRACE("operation " + std::to_string(operation) + ": " + text);
    EXPECT_TRUE(!failed || holds(text, {d.path(), "planned by the test"}));
    // Only a removal that failed may leave something behind: no half-written save does.
    for (const std::string& name : list_checkpoints(d.path()).incomplete)
      EXPECT_EQ(name, "step_00000050.tmp (interrupted)");
    EXPECT_FALSE(std::filesystem::exists(d / "latest.tmp"));
    check_intact(d.path());
  }
}

TEST(CheckpointDamage, C9_AFullDiskNamesPathAndReason) {
  TemporaryDirectory d;
  save(d.path(), 100);
  // A limit on the size of files stands in for a full disk: write() then fails half way.
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 150, old.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = error_of([&] { save(d.path(), 200); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);

  EXPECT_TRUE(holds(text, {"cannot write", d / "step_00000200.tmp/rank_0.bin", "File too large"}))
      << text;
  EXPECT_FALSE(std::filesystem::exists(d / "step_00000200.tmp"));
  EXPECT_FALSE(std::filesystem::exists(d / "step_00000200"));
  EXPECT_EQ(check_intact(d.path()), 100);
}

TEST(CheckpointDamage, C9_ADirectoryThatCannotBeMadeNamesPathAndReason) {
  TemporaryDirectory d;
  write_text(d / "file", "not a directory");
  const std::string text = error_of([&] { save(d / "file/run", 1); });
  EXPECT_TRUE(holds(text, {d / "file/run", "Not a directory"})) << text;
}

TEST(CheckpointDamage, C3_BytesThatReadBackDifferentlyAreNotPublished) {
  TemporaryDirectory d;
  save(d.path(), 100);
  // A disk that flips a bit of the data file on its way to the medium: after its close.
  bool closed = false;
  Disk disk{[&](const char* operation, const std::string& path) {
    if (closed) return;
    if (std::string(operation) == "create" && path.ends_with(kIndexFile)) {
      std::string bytes = read_text(d / "step_00000200.tmp/rank_0.bin");
      bytes[70] ^= 4;
      write_text(d / "step_00000200.tmp/rank_0.bin", bytes);
      closed = true;
    }
  }};
  const std::string text = error_of([&] { save(d.path(), 200, {}, disk); });
  EXPECT_TRUE(closed);
  EXPECT_TRUE(holds(text, {"weight", "rank_0.bin", "hash"})) << text;
  EXPECT_EQ(check_intact(d.path()), 100);
}

TEST(CheckpointDamage, C4_AFlippedByteNamesTensorAndFileAndChangesNothing) {
  TemporaryDirectory d;
  const std::string path = save(d.path(), 100), file = path + "/rank_0.bin";
  const std::string good = read_text(file);
  const CheckpointReader reader(path);
  for (const auto& [name, tensor] : reader.index().tensors) {
    const StoredBox& box = tensor.boxes.at(0);
    for (const int64_t at : {box.first_byte, box.first_byte + box.bytes - 1}) {
      std::string bad = good;
      bad[size_t(at)] ^= 1;
      write_text(file, bad);
      SmallModel m = SmallModel::at(3);
      const std::string text = error_of([&] { CheckpointReader(path).load(m.wanted()); });
      EXPECT_TRUE(holds(text, {name + " in " + file, "hash"})) << text;
      EXPECT_EQ(m, SmallModel::at(3)) << "also the tensors read before " << name;
    }
  }
  write_text(file, good);
  EXPECT_EQ(load(path), SmallModel::at(100));
}

TEST(CheckpointDamage, C4_AFlippedByteOfTheIndexIsFound) {
  TemporaryDirectory d;
  const std::string path = save(d.path(), 100), file = path + "/index.json";
  const std::string good = read_text(file);
  for (size_t at = 0; at < good.size(); at += 7) {
    std::string bad = good;
    bad[at] ^= 1;
    write_text(file, bad);
    const std::string text = error_of([&] { CheckpointReader{path}; });
    EXPECT_TRUE(holds(text, {file, "damaged"})) << text;
  }
}

TEST(CheckpointDamage, C2_LatestIsTheNewestCompleteStepAndTheOthersAreNamedInOneLine) {
  TemporaryDirectory d;
  for (int64_t step : {100, 200, 300, 400}) save(d.path(), step);
  std::filesystem::create_directory(d / "step_00000500.tmp");
  std::filesystem::create_directory(d / "step_00000450");
  std::filesystem::remove(d / "step_00000400/rank_0.bin");
  std::filesystem::resize_file(d / "step_00000300/rank_0.bin", 200);
  write_text(d / "latest", "step_00000400\n");  // wrong, and not asked

  const auto list = list_checkpoints(d.path());
  EXPECT_EQ(latest_step(list, d.path()), 200);
  const std::string line = list.warning();
  EXPECT_TRUE(holds(line, {"step_00000300 (", "is cut: it has 200 of", "step_00000400 (",
                           "No such file", "step_00000450 (", "step_00000500.tmp (interrupted)"}))
      << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(CheckpointDamage, ANewerFormatIsAnError) {
  TemporaryDirectory d;
  const std::string path = save(d.path(), 100);
  auto index = nlohmann::json::parse(read_text(path + "/index.json"));
  index["format"] = 2;
  const std::string text = index.dump();
  EXPECT_TRUE(holds(error_of([&] { parse_index(text, "index.json"); }),
                    {"index.json", "format 2", "reads format 1"}));
  EXPECT_TRUE(holds(error_of([&] { parse_index("{\"format\": 1}", "index.json"); }), {"step"}));
  EXPECT_TRUE(holds(error_of([&] { parse_index("[", "index.json"); }), {"not the index"}));
}

}  // namespace
}  // namespace gradus::train
