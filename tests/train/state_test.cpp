#include "train/state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "nn/init.h"
#include "ops/ops.h"
#include "tests/devices.h"
#include "tests/train/helpers.h"
#include "train/checkpoint_directory.h"

namespace gradus::train {
namespace {

// Two matrices, a vector, and a third name for the first matrix.
struct Net final : nn::Module {
  nn::Parameter in{{6, 4}, nn::init::normal(1)}, out{{3, 6}, nn::init::normal(1)},
      bias{{3}, nn::init::normal(1)}, tied = in;
  void fields(nn::Fields& f) override { f("in", in)("out", out)("bias", bias)("tied", tied); }
};

std::vector<std::vector<double>> values_of(nn::Module& module) {
  std::vector<std::vector<double>> all;
  for (const nn::Parameter& p : module.parameters()) all.push_back(p.to_vector());
  return all;
}

std::string save(const std::string& directory, int64_t step, nn::Module& module) {
  CheckpointWriter writer(directory, step);
  save_state(writer, parameters_of(module));
  return writer.publish({});
}

TEST(State, AModuleReadsBackExactlyOnEveryDeviceAndInEveryType) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes) {
      TemporaryDirectory d;
      Net saved, loaded;
      nn::initialize(saved, 1);
      nn::initialize(loaded, 2);
      for (Net* net : {&saved, &loaded}) net->cast(dtype), net->to(device);
      ASSERT_NE(values_of(saved), values_of(loaded));
      load_state(CheckpointReader(save(d.path(), 1, saved)), parameters_of(loaded));
      EXPECT_EQ(values_of(saved), values_of(loaded)) << device << ' ' << dtype;
    }
}

TEST(State, ATiedParameterIsStoredOnceUnderItsFirstName) {
  TemporaryDirectory d;
  Net net;
  nn::initialize(net, 1);
  const CheckpointReader reader(save(d.path(), 1, net));
  EXPECT_EQ(reader.index().tensors.size(), 3u);
  EXPECT_EQ(reader.index().tensors.count("tied"), 0u);
}

TEST(State, LoadingIsAWriteThatTheEngineSees) {
  TemporaryDirectory d;
  Net net;
  nn::initialize(net, 1);
  const std::string path = save(d.path(), 1, net);
  const uint32_t before = net.in.version();
  load_state(CheckpointReader(path), parameters_of(net));
  EXPECT_GT(net.in.version(), before);
  EXPECT_TRUE(net.in.requires_grad());
}

TEST(State, C3_AChangedParameterChangesTheHash) {
  TemporaryDirectory d;
  Net net;
  nn::initialize(net, 1);
  const auto hashes = [&](int64_t step) {
    const CheckpointReader reader(save(d.path(), step, net));
    std::vector<std::string> all;
    for (const auto& [name, t] : reader.index().tensors) all.push_back(t.boxes.at(0).hash);
    return all;  // bias, in, out
  };
  const auto first = hashes(1);
  net.out.detach().set(7, 0.125);
  const auto second = hashes(2);
  EXPECT_EQ(second[0], first[0]);
  EXPECT_EQ(second[1], first[1]);
  EXPECT_NE(second[2], first[2]);
}

TEST(State, C4_ADamagedCheckpointLeavesTheModelAsItWas) {
  TemporaryDirectory d;
  Net saved, net;
  nn::initialize(saved, 1);
  nn::initialize(net, 2);
  const std::string path = save(d.path(), 1, saved);
  const auto bias = CheckpointReader(path).index().tensors.at("bias").boxes.at(0);
  std::string bytes = read_text(path + "/" + bias.file);
  bytes[size_t(bias.first_byte) + 5] ^= 0x10;
  write_text(path + "/" + bias.file, bytes);

  const auto before = values_of(net);
  const std::string text =
      error_of([&] { load_state(CheckpointReader(path), parameters_of(net)); });
  EXPECT_TRUE(holds(text, {"bias", bias.file})) << text;
  EXPECT_EQ(values_of(net), before);
}

struct Wider final : nn::Module {
  nn::Parameter in{{6, 5}, nn::init::normal(1)}, out{{3, 6}, nn::init::normal(1)},
      gain{{3}, nn::init::normal(1)};
  void fields(nn::Fields& f) override { f("in", in)("out", out)("gain", gain); }
};

TEST(State, C5_AnotherModelIsRefusedWithEveryDifferenceAndUnchanged) {
  TemporaryDirectory d;
  Net saved;
  Wider net;
  nn::initialize(saved, 1);
  nn::initialize(net, 2);
  const auto before = values_of(net);
  const CheckpointReader reader(save(d.path(), 1, saved));
  const std::string text = error_of([&] { load_state(reader, parameters_of(net)); });
  EXPECT_TRUE(
      holds(text, {"missing: gain", "unexpected: bias", "in is f32 (6, 4), expected f32 (6, 5)"}))
      << text;
  EXPECT_EQ(values_of(net), before);
}

TEST(State, PiecesOfAShardByHand) {
  // The picture in the header: rank 1 of 2, gate over up.
  const auto pieces = pieces_of({4, 3}, {.dim = 0, .rank = 1, .ranks = 2, .pieces = 2});
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].here, (Box{{0, 0}, {2, 3}}));
  EXPECT_EQ(pieces[0].global, (Box{{2, 0}, {2, 3}}));
  EXPECT_EQ(pieces[1].here, (Box{{2, 0}, {2, 3}}));
  EXPECT_EQ(pieces[1].global, (Box{{6, 0}, {2, 3}}));
  EXPECT_THROW(pieces_of({4, 3}, {.dim = 2, .ranks = 2}), Error);
  EXPECT_THROW(pieces_of({4, 3}, {.dim = 0, .rank = 2, .ranks = 2}), Error);
  EXPECT_THROW(pieces_of({4, 3}, {.dim = 1, .ranks = 2, .pieces = 2}), Error);
}

// The same model, drawn from one seed, cut over `ranks` ranks.
struct Cut final : nn::Module {
  nn::Parameter rows, columns, fused, whole;
  Cut(int rank, int ranks)
      : rows({12 / ranks, 5}, nn::init::normal(1), {.dim = 0, .rank = rank, .ranks = ranks}),
        columns({5, 12 / ranks}, nn::init::normal(1), {.dim = 1, .rank = rank, .ranks = ranks}),
        fused({3, 24 / ranks}, nn::init::normal(1),
              {.dim = 1, .rank = rank, .ranks = ranks, .pieces = 2}),
        whole({7}, nn::init::normal(1)) {}
  void fields(nn::Fields& f) override {
    f("rows", rows)("columns", columns)("fused", fused)("whole", whole);
  }
};

TEST(State, C6_ShardsAreReadAtEveryOtherNumberOfRanks) {
  for (int saved : {1, 2, 4, 6}) {
    TemporaryDirectory d;
    CheckpointWriter writer(d.path(), 1);
    for (int rank = 0; rank < saved; ++rank) {
      Cut cut(rank, saved);
      nn::initialize(cut, 5);
      auto state = parameters_of(cut);
      if (rank > 0) state.pop_back();  // what all ranks hold has one writer
      save_state(writer, state);
    }
    const CheckpointReader reader(writer.publish({}));
    for (int loaded : {1, 2, 3, 4})
      for (int rank = 0; rank < loaded; ++rank) {
        Cut expected(rank, loaded), got(rank, loaded);
        nn::initialize(expected, 5);
        nn::initialize(got, 6);
        load_state(reader, parameters_of(got));
        EXPECT_EQ(values_of(got), values_of(expected)) << saved << " ranks to " << loaded;
      }
  }
}

// What a data rank keeps of an optimizer's state: a run of elements of its shard, which may begin and end
// within a row; rows that are padding are not stored.
std::vector<StateTensor> slices_of(const nn::Parameter& p, int slice, int slices) {
  const int64_t n = p.numel(), begin = n * slice / slices, end = n * (slice + 1) / slices;
  const Tensor part = p.detach().alias({end - begin}, {1}, begin);
  return {{"m", part, p.shard, ShardRange{p.shape(), begin, end}}};
}

TEST(State, SlicesOfShardsAreReadAtEveryOtherLayout) {
  // 11 rows over 1, 2 or 3 ranks: the last one has a row of padding.
  const auto shard = [](int rank, int ranks) {
    const int64_t local = (11 + ranks - 1) / ranks;
    nn::Parameter p({local, 5}, nn::init::normal(1), nn::padded_shard(rank, ranks, local, 11));
    nn::initialize(p, Philox::at(5, 0));
    return p;
  };
  for (int ranks : {1, 2, 3})
    for (int slices : {1, 2, 5}) {
      TemporaryDirectory d;
      CheckpointWriter writer(d.path(), 1);
      for (int rank = 0; rank < ranks; ++rank)
        for (int slice = 0; slice < slices; ++slice)
          save_state(writer, slices_of(shard(rank, ranks), slice, slices));
      const CheckpointReader reader(writer.publish({}));
      EXPECT_EQ(reader.index().tensors.at("m").shape, (Shape{11, 5}));
      for (int other : {1, 2, 3})
        for (int rank = 0; rank < other; ++rank)
          for (int slice = 0; slice < 3; ++slice) {
            const auto expected = slices_of(shard(rank, other), slice, 3);
            const auto got = slices_of(shard(rank, other), slice, 3);
            fill_(got[0].tensor.values, 7);
            load_state(reader, got);
            EXPECT_EQ(got[0].tensor.read().to_vector(), expected[0].tensor.read().to_vector())
                << ranks << " ranks, " << slices << " slices, rank " << rank << " of " << other;
          }
    }
}

}  // namespace
}  // namespace gradus::train
