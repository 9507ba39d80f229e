#include "optim/arena_layout.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

using Strings = std::vector<std::string>;

nn::Parameter parameter(const std::string& name, const Shape& shape, nn::Shard shard = {}) {
  nn::Parameter p(shape, {}, shard);
  p.set_name(name);
  return p;
}

// As a rank of two sees a small model under sequence parallel.
std::vector<ParameterGroup> groups_of(int rank) {
  const nn::Shard rows{.dim = 0, .rank = rank, .ranks = 2};
  const nn::Shard columns{.dim = 1, .rank = rank, .ranks = 2};
  const nn::Shard partial{.partial_grad = true};
  ParameterGroup decayed{.name = "decayed"}, others{.name = "others"};
  decayed.parameters = {parameter("wte", {10, 8}, rows), parameter("wpe", {5, 8}, partial),
                        parameter("up", {9, 8}, rows), parameter("down", {8, 9}, columns)};
  others.parameters = {parameter("norm", {8}, partial), parameter("up.bias", {9}, rows),
                       parameter("down.bias", {8}, partial), parameter("pooler", {70})};
  return {decayed, others};
}

Strings names_of(const ArenaLayout& layout) {
  Strings names;
  for (const Slot& slot : layout.slots()) names.push_back(slot.name());
  return names;
}

TEST(ArenaLayout, WithoutTensorRanksTheOrderIsThatOfTheGroups) {
  const ArenaLayout layout(groups_of(1), {});
  EXPECT_EQ(names_of(layout),
            (Strings{"wte", "wpe", "up", "down", "norm", "up.bias", "down.bias", "pooler"}));
  EXPECT_EQ(layout.range(1), (Range{128 + 64 + 128 + 128, 448 + 64 * 3 + 128}));
  EXPECT_EQ(layout.buckets().size(), 2u);
  EXPECT_EQ(layout.counted().ranges, (std::vector<Range>{{0, layout.size()}}));
  EXPECT_EQ(layout.own_size(), layout.size());
  EXPECT_TRUE(layout.partial().empty());
}

TEST(ArenaLayout, CutParametersComeFirstThenThoseWithPartsOfGradients) {
  for (int rank : {0, 1}) {
    const ArenaLayout layout(groups_of(rank), {.tensor_rank = rank, .tensor_ranks = 2});
    EXPECT_EQ(names_of(layout),
              (Strings{"wte", "up", "down", "wpe", "up.bias", "norm", "down.bias", "pooler"}));
    EXPECT_EQ(layout.partial(), (std::vector<Range>{{384, 448}, {512, 640}}));
    // Rank 1 counts what is cut, and 48 + 56 + 56 elements of it are gaps; rank 0 counts all.
    const Counted counted = layout.counted();
    const std::vector<Range> all{{0, 768}}, cut{{0, 384}, {448, 512}};
    EXPECT_EQ(counted.ranges, rank == 0 ? all : cut);
    EXPECT_EQ(counted.gaps, (128 - 80) + 2 * (128 - 72) + (64 - 9) +
                                (rank == 0 ? (64 - 40) + 2 * (64 - 8) + (128 - 70) : 0));
  }
}

// A table of 5 rows on two ranks: the last row of the second is padding, as are the gaps.
TEST(ArenaLayout, PaddingOfAShardBelongsToNoParameter) {
  for (int rank : {0, 1}) {
    ParameterGroup group;
    group.parameters = {parameter("table", {3, 10}, nn::padded_shard(rank, 2, 3, 5))};
    const ArenaLayout layout({group}, {.tensor_rank = rank, .tensor_ranks = 2});
    EXPECT_EQ(layout.counted().gaps, rank == 0 ? 64 - 30 : 64 - 20);
    EXPECT_EQ(layout.own_part(layout.slots()[0]).end, rank == 0 ? 30 : 20);
  }
}

TEST(ArenaLayout, ARankThatCountsNothingHasAnEmptyRange) {
  ParameterGroup group;
  group.parameters = {parameter("norm", {8})};
  const ArenaLayout layout({group}, {.tensor_rank = 1, .tensor_ranks = 2});
  EXPECT_EQ(layout.counted().ranges, (std::vector<Range>{{0, 0}}));
  EXPECT_EQ(layout.counted().gaps, 0);
}

TEST(ArenaLayout, BucketsAreFilledFromTheEndAndKeepToOneGroupAndKind) {
  ParameterGroup a, b;
  for (int i = 0; i < 5; ++i) a.parameters.push_back(parameter("", {100}));  // 128 each
  b.parameters = {parameter("", {200}), parameter("", {1})};
  const ArenaLayout layout({a, b}, {.bucket = 200});
  std::vector<Range> buckets;
  for (const Bucket& bucket : layout.buckets()) buckets.push_back(bucket.all);
  EXPECT_EQ(buckets,
            (std::vector<Range>{{0, 128}, {128, 384}, {384, 640}, {640, 896}, {896, 960}}));
  EXPECT_EQ(layout.buckets()[2].group, 0);
  EXPECT_EQ(layout.buckets()[3].group, 1);
}

// Slices of 3 ranks: equal, whole multiples of 64, and together each element of each parameter once.
TEST(ArenaLayout, SlicesCoverEachElementOnce) {
  for (int64_t bucket : {int64_t(1), int64_t(150), int64_t(1) << 40}) {
    std::vector<std::vector<int>> seen;
    for (int r = 0; r < 3; ++r) {
      const ArenaLayout layout(groups_of(0), {.slice = r, .slices = 3, .bucket = bucket});
      int64_t place = 0;
      for (const Bucket& b : layout.buckets()) {
        EXPECT_EQ(b.own.size() % 64, 0);
        EXPECT_EQ(b.own.size() * 3, b.all.size());
        EXPECT_EQ(b.own.begin, b.all.begin + r * b.own.size());
        EXPECT_EQ(b.own.begin - b.shift, place);
        place += b.own.size();
      }
      EXPECT_EQ(place, layout.own_size());
      seen.resize(layout.slots().size());
      for (size_t s = 0; s < seen.size(); ++s) {
        const Slot& slot = layout.slots()[s];
        const OwnPart own = layout.own_part(slot);
        seen[s].resize(size_t(slot.parameter.numel()));
        for (int64_t i = own.begin; i < own.end; ++i) ++seen[s][size_t(i)];
      }
      const Counted counted = layout.counted();
      int64_t gaps = 0;
      for (const Range& range : counted.ranges) gaps += range.size();
      for (const Slot& slot : layout.slots())
        gaps -= layout.own_part(slot).end - layout.own_part(slot).begin;
      EXPECT_EQ(counted.gaps, gaps);
    }
    for (const auto& elements : seen) EXPECT_EQ(elements, std::vector<int>(elements.size(), 1));
  }
}

TEST(ArenaLayout, WrongOptionsAreErrors) {
  const std::vector<ParameterGroup> groups = groups_of(0);
  EXPECT_THROW(ArenaLayout(groups, {.tensor_rank = 2, .tensor_ranks = 2}), Error);
  EXPECT_THROW(ArenaLayout(groups, {.slice = 1}), Error);
  EXPECT_THROW(ArenaLayout(groups, {.bucket = 0}), Error);
  EXPECT_THROW(Muon(groups, {}, {.slices = 2}), Error);
}

// ---- slices of an update, the ranks one after the other

/// Three parameters, with values and gradients that differ from element to element.
Tensors leaves(DType dtype, Device device) {
  Tensors list;
  Generator random(5);
  for (const Shape& shape : {Shape{7, 30}, Shape{3}, Shape{90}})
    list.push_back(to(normal(shape, random, 0, 1, dtype), device).requires_grad_());
  return list;
}

void step(Optimizer& optimizer, const Tensors& list) {
  optimizer.zero_grad();
  for (const Tensor& x : list) sum(mul(mul(x, x), x)).backward();
  optimizer.update(0.1, 0.5);
}

OwnPart own_part_of(const Optimizer& optimizer, const Tensor& leaf) {
  for (const Slot& slot : optimizer.flat().slots())
    if (slot.parameter.is_same(leaf)) return optimizer.flat().layout().own_part(slot);
  return {};
}

using Make = std::function<std::unique_ptr<Optimizer>(const Tensors&, const ArenaOptions&)>;

const Make kOptimizers[] = {
    [](const Tensors& list, const ArenaOptions& arena) {
      return std::make_unique<Adam>(default_groups(list), AdamOptions{.weight_decay = 0.1}, arena);
    },
    [](const Tensors& list, const ArenaOptions& arena) {
      return std::make_unique<Sgd>(default_groups(list), SgdOptions{.momentum = 0.9}, arena);
    },
};

// What a rank updates is bit for bit what one rank alone computes there, and nothing else moves.
TEST(Slices, UpdateTheirPartAsTheWholeUpdateDoes) {
  for (Device device : test_devices())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Make& make : kOptimizers)
        for (int64_t bucket : {int64_t(1), int64_t(1) << 40}) {
          const Tensors whole = leaves(dtype, device), before = leaves(dtype, device);
          const auto plain = make(whole, {});
          step(*plain, whole);
          for (int r = 0; r < 3; ++r) {
            const Tensors mine = leaves(dtype, device);
            const auto part = make(mine, {.slice = r, .slices = 3, .bucket = bucket});
            step(*part, mine);
            for (size_t k = 0; k < mine.size(); ++k) {
              const OwnPart own = own_part_of(*part, mine[k]);
              std::vector<double> expected = before[k].to_vector();
              const std::vector<double> y = whole[k].to_vector();
              std::copy(y.begin() + own.begin, y.begin() + own.end, expected.begin() + own.begin);
              EXPECT_EQ(mine[k].to_vector(), expected);
            }
          }
        }
}

// The parts of state that ranks name are the whole state, cut.
TEST(Slices, StateNamesThePartsOfParametersThatAreHere) {
  const Tensors whole = leaves(DType::bf16, kCpu);
  const auto plain = kOptimizers[0](whole, {});
  step(*plain, whole);
  const std::vector<NamedState> expected = plain->state();
  ASSERT_EQ(expected.size(), 9u);
  std::vector<std::vector<double>> joined(9);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(expected[i].begin, 0);
    EXPECT_EQ(expected[i].end, expected[i].parameter.numel());
    EXPECT_EQ(expected[i].value.shape(), expected[i].parameter.shape());
    joined[i].resize(size_t(expected[i].end), -99);
  }
  for (int r = 0; r < 2; ++r) {
    const Tensors mine = leaves(DType::bf16, kCpu);
    const auto part = kOptimizers[0](mine, {.slice = r, .slices = 2});
    step(*part, mine);
    for (const NamedState& s : part->state())
      for (size_t i = 0; i < 9; ++i) {
        if (s.name != expected[i].name) continue;
        EXPECT_EQ(s.value.numel(), s.end - s.begin);
        const std::vector<double> values = s.value.read().to_vector();
        std::copy(values.begin(), values.end(), joined[i].begin() + s.begin);
      }
  }
  for (size_t i = 0; i < 9; ++i)
    EXPECT_EQ(joined[i], expected[i].value.read().to_vector()) << expected[i].name;
}

// Of bf16 parameters a master is written in two places, of which one lies in the arena of parameters.
TEST(Slices, StateOfAnotherLayoutIsWrittenToTheOwnPartAlone) {
  const Tensors whole = leaves(DType::bf16, kCpu);
  const auto plain = kOptimizers[0](whole, {});
  step(*plain, whole);
  for (int r = 0; r < 2; ++r) {
    const Tensors mine = leaves(DType::bf16, kCpu), before = leaves(DType::bf16, kCpu);
    const auto part = kOptimizers[0](mine, {.slice = r, .slices = 2});
    for (const NamedState& s : part->state())
      for (const NamedState& from : plain->state()) {
        if (s.name != from.name) continue;
        const std::vector<double> all = from.value.read().to_vector();
        const std::vector<double> own(all.begin() + s.begin, all.begin() + s.end);
        s.value.write(tensor(own, s.value.shape()));
        EXPECT_EQ(s.value.read().to_vector(), own) << s.name;
      }
    for (const Slot& slot : part->flat().slots()) {
      const OwnPart own = part->flat().layout().own_part(slot);
      const size_t k = size_t(slot.number);
      std::vector<double> expected = before[k].to_vector();
      const std::vector<double> written = whole[k].to_vector();
      std::copy(written.begin() + own.begin, written.begin() + own.end,
                expected.begin() + own.begin);
      EXPECT_EQ(mine[k].to_vector(), expected) << k;
    }
  }
}

TEST(Slices, ReloadedMastersFollowLoadedParameters) {
  const Tensors list = leaves(DType::bf16, kCpu);
  const auto adam = kOptimizers[0](list, {.slice = 1, .slices = 2});
  fill_(list[0].detach(), 8);
  adam->flat().reload_masters();
  const NamedState master = adam->state()[2];
  EXPECT_EQ(master.name, "parameter 0.master");
  EXPECT_EQ(master.begin, 128);
  EXPECT_EQ(master.value.read().to_vector(), std::vector<double>(210 - 128, 8));
}

// Σ g², zeros and the first element that is not finite, over ranges with gaps between them.
TEST(Slices, NormsAndZerosAreThoseOfTheOwnPart) {
  for (Device device : test_devices())
    for (DType dtype : {DType::f64, DType::f32}) {
      double squares = 0, zeros = 0;
      for (int r = 0; r < 2; ++r) {
        Tensors list;
        for (int i = 0; i < 3; ++i) list.push_back(ones({200}, dtype, device).requires_grad_());
        Sgd sgd(default_groups(list), {}, {.slice = r, .slices = 2, .bucket = 1});
        for (const Tensor& x : list) sum(mul(x, 3)).backward();
        list[1].grad().set(5, 0), list[2].grad().set(199, 0);
        const StepResult result = sgd.step(0, {.count_zeros = true});
        squares += result.grad_norm() * result.grad_norm();
        zeros += double(result.zeros());
        list[2].grad().set(150, NAN);
        const StepResult bad = sgd.step(0);
        EXPECT_EQ(bad.applied(), r == 0);
        EXPECT_EQ(bad.non_finite(), r == 0 ? "" : "parameter 2");
      }
      EXPECT_NEAR(squares, 598 * 9, 1e-9);
      EXPECT_EQ(zeros, 2);
    }
}

}  // namespace
}  // namespace gradus::optim
