// Writing and reading checkpoints whose files nobody disturbs, and what a load accepts.
#include <gtest/gtest.h>

#include "tests/train/checkpoint_helpers.h"

namespace gradus::train {
namespace {

TEST(Checkpoint, ReadsBackExactlyWhatWasSaved) {
  TemporaryDirectory d;
  const std::string path = save(d / "run", 100, 1.25);
  EXPECT_EQ(path, d / "run/step_00000100");
  EXPECT_EQ(load(path), SmallModel::at(100));

  const CheckpointReader reader(path);
  EXPECT_EQ(reader.index().step, 100);
  EXPECT_EQ(reader.index().score, 1.25);
  EXPECT_EQ(reader.meta(), (nlohmann::json{{"name", "small"}, {"consumed", 3200}}));
  EXPECT_EQ(reader.index().tensors.at("weight").shape, (Shape{8, 5}));
  EXPECT_EQ(read_text(d / "run/latest"), "step_00000100\n");
}

TEST(Checkpoint, StoredBoxesAreAligned) {
  TemporaryDirectory d;
  const CheckpointReader reader(save(d.path(), 1));
  for (const auto& [name, tensor] : reader.index().tensors)
    for (const StoredBox& box : tensor.boxes) EXPECT_EQ(box.first_byte % 64, 0) << name;
}

TEST(Checkpoint, C3_EqualParametersHaveEqualHashesAndOthersDiffer) {
  TemporaryDirectory d;
  const auto hash = [&](int64_t step, int64_t content) {
    CheckpointWriter writer(d.path(), step);
    SmallModel::at(content).add_to(writer);
    const CheckpointReader reader(writer.publish({}));
    return reader.index().tensors.at("weight").boxes.at(0).hash;
  };
  const std::string first = hash(1, 7);
  EXPECT_EQ(hash(2, 7), first);
  EXPECT_NE(hash(3, 8), first);
}

// Two ranks hold half the rows each; four readers want other halves and quarters.
TEST(Checkpoint, C6_BoxesAreReadAtAnotherLayout) {
  TemporaryDirectory d;
  const Shape shape{4, 6};
  std::vector<float> all(24);
  std::iota(all.begin(), all.end(), 0.f);
  CheckpointWriter writer(d.path(), 1);
  writer.add("w", DType::f32, shape, {{0, 0}, {2, 6}}, &all[0]);
  const Disk disk;
  BoxFile other_rank(disk, writer.temporary_directory(), "rank_1.bin");
  other_rank.add("w", DType::f32, shape, {{2, 0}, {2, 6}}, &all[12]);
  writer.add(other_rank.finish());
  const CheckpointReader reader(writer.publish({}));

  std::vector<float> columns(12, -1), middle(4, -1);
  reader.load(std::vector<WantedBox>{{"w", DType::f32, shape, {{0, 3}, {4, 3}}, columns.data()},
                                     {"w", DType::f32, shape, {{1, 2}, {2, 2}}, middle.data()}});
  EXPECT_EQ(columns, (std::vector<float>{3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23}));
  EXPECT_EQ(middle, (std::vector<float>{8, 9, 14, 15}));
}

TEST(Checkpoint, EmptyTensorsAreKept) {
  TemporaryDirectory d;
  CheckpointWriter writer(d.path(), 1);
  writer.add("none", DType::f32, {0, 3}, nullptr);
  const CheckpointReader reader(writer.publish({}));
  EXPECT_NO_THROW(reader.load(
      std::vector<WantedBox>{{"none", DType::f32, {0, 3}, whole_box({0, 3}), nullptr}}));
}

TEST(Checkpoint, C5_EverythingThatDoesNotFitIsInOneError) {
  TemporaryDirectory d;
  const CheckpointReader reader(save(d.path(), 100));
  SmallModel m = SmallModel::at(3);
  std::vector<float> more(12);
  auto wanted = m.wanted();
  wanted[0].shape = {5, 8}, wanted[0].box = whole_box({5, 8});  // as many elements
  wanted[1].dtype = DType::f16;                                 // as many bytes
  wanted[2] = {"gain", DType::f64, {}, whole_box({}), m.scale.data()};
  wanted.push_back({"head", DType::f32, {12}, whole_box({12}), more.data()});
  const std::string text = error_of([&] { reader.load(wanted); });
  EXPECT_TRUE(holds(
      text, {reader.path(), "missing: gain, head", "unexpected: scale",
             "bias is bf16 (7,), expected f16 (7,)", "weight is f32 (8, 5), expected f32 (5, 8)"}))
      << text;
  EXPECT_EQ(m, SmallModel::at(3));
}

TEST(Checkpoint, C5_TensorsNobodyWantsAreAnErrorUnlessIgnored) {
  TemporaryDirectory d;
  const CheckpointReader reader(save(d.path(), 100));
  SmallModel m;
  auto wanted = m.wanted();
  wanted.pop_back();
  EXPECT_TRUE(holds(error_of([&] { reader.load(wanted); }), {"unexpected: scale"}));
  reader.load(wanted, Unexpected::ignore);
  EXPECT_EQ(m.weight, SmallModel::at(100).weight);
}

TEST(Checkpoint, C5_BoxesThatOverlapOrLeaveHolesAreNotPublished) {
  TemporaryDirectory d;
  const float values[6] = {};
  const auto publish = [&](const Box& a, const Box& b) {
    return error_of([&] {
      CheckpointWriter writer(d / "run", 1);
      writer.add("w", DType::f32, {6}, a, values);
      writer.add("w", DType::f32, {6}, b, values);
      writer.publish({});
    });
  };
  EXPECT_TRUE(holds(publish({{0}, {3}}, {{2}, {3}}), {"w", "overlap"}));
  EXPECT_TRUE(holds(publish({{0}, {3}}, {{4}, {2}}), {"w", "5 of 6 elements"}));
  EXPECT_TRUE(holds(publish({{0}, {3}}, {{4}, {3}}), {"w", "not inside (6,)"}));
  EXPECT_TRUE(list_checkpoints(d / "run").complete.empty());
  EXPECT_EQ(publish({{0}, {3}}, {{3}, {3}}), "no error");
}

// An index whose boxes overlap can only come from another program; a load lists it all the same.
TEST(Checkpoint, C5_OverlapInAStoredIndexIsListedByTheLoad) {
  TemporaryDirectory d;
  const std::string path = save(d.path(), 100);
  auto index = nlohmann::json::parse(read_text(path + "/index.json"));
  auto& boxes = index["tensors"]["bias"]["boxes"];
  boxes.push_back(boxes[0]);
  const std::string text = write_text(path + "/index.json", index.dump());
  write_text(path + "/index.xxh128",
             hash_of(index.dump().data(), index.dump().size()) + "  index.json\n");
  SmallModel m = SmallModel::at(3);
  auto wanted = m.wanted();
  wanted[0].name = "wait";
  const std::string error = error_of([&] { CheckpointReader(path).load(wanted); });
  EXPECT_TRUE(holds(error, {"missing: wait", "unexpected: weight", "bias (pieces", "overlap"}))
      << error;
  EXPECT_EQ(m, SmallModel::at(3));
}

TEST(Checkpoint, OneTensorHasOneTypeAndShape) {
  TemporaryDirectory d;
  CheckpointWriter writer(d.path(), 1);
  const double values[6] = {};
  writer.add("w", DType::f32, {6}, {{0}, {3}}, values);
  EXPECT_TRUE(holds(error_of([&] {
                      writer.add("w", DType::f64, {6}, {{3}, {3}}, values);
                    }),
                    {"w", "f32 (6,)", "f64 (6,)"}));
}

TEST(Checkpoint, AStepIsSavedOnce) {
  TemporaryDirectory d;
  save(d.path(), 100);
  const std::string text = error_of([&] { save(d.path(), 100); });
  EXPECT_TRUE(holds(text, {"step 100 is already saved", "step_00000100"})) << text;
  EXPECT_EQ(load(d / "step_00000100"), SmallModel::at(100));
}

}  // namespace
}  // namespace gradus::train
