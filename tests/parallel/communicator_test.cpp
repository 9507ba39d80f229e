// Every collective against a loop over what all ranks hold. Elements are small integers, exact in each
// dtype, so sums are compared bit by bit.
#include "parallel/communicator.h"

#include <cmath>

#include "ops/ops.h"
#include "tests/devices.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

/// Element i of what rank r holds: 0 … 6, different on each rank.
int64_t element(int r, int64_t i) { return (5 * r + 3 * i + i / 7) % 7; }

Tensor held_by(int r, const Shape& shape, DType dtype = DType::f32) {
  Tensor x = empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double(element(r, i)));
  return x;
}

double sum_of(int ranks, int64_t i) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += double(element(r, i));
  return sum;
}

/// The row-major number of an element that lies at (before, along, after) around axis `dim`.
struct Axis3 {
  int64_t before = 1, along, after = 1;
  Axis3(const Shape& shape, int dim) : along(shape[dim]) {
    for (int i = 0; i < dim; ++i) before *= shape[i];
    for (int i = dim + 1; i < shape.rank(); ++i) after *= shape[i];
  }
  int64_t at(int64_t b, int64_t i, int64_t a) const { return (b * along + i) * after + a; }
};

/// Calls body(b, i, a) for all elements around an axis.
template <class F>
void for_each(const Axis3& x, F&& body) {
  for (int64_t b = 0; b < x.before; ++b)
    for (int64_t i = 0; i < x.along; ++i)
      for (int64_t a = 0; a < x.after; ++a) body(b, i, a);
}

TEST(Communicator, AllReduceAddsWhatAllHold) {
  on_each_world([](Communicator world) {
    for (DType dtype : kAllTypes)
      for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0, 4}}) {
        const Tensor x = held_by(world.rank(), shape, dtype), y = world.all_reduce(x);
        ASSERT_EQ(y.shape(), shape);
        ASSERT_EQ(y.dtype(), dtype);
        for (int64_t i = 0; i < x.numel(); ++i) {
          ASSERT_EQ(y.at(i), sum_of(world.size(), i)) << dtype;
          ASSERT_EQ(x.at(i), double(element(world.rank(), i))) << "the input was written to";
        }
      }
  });
}

TEST(Communicator, AllReduceMaxTakesTheLargestAndKeepsNaN) {
  on_each_world([](Communicator world) {
    for (DType dtype : kAllTypes) {
      const Tensor y = world.all_reduce(held_by(world.rank(), {9}, dtype), Reduce::max);
      for (int64_t i = 0; i < 9; ++i) {
        double largest = 0;
        for (int r = 0; r < world.size(); ++r) largest = std::max(largest, double(element(r, i)));
        ASSERT_EQ(y.at(i), largest) << dtype;
      }
    }
    const Tensor negative = world.all_reduce(full({1}, -2.0 - world.rank()), Reduce::max);
    EXPECT_EQ(negative.item(), -2);
  });
}

// More bytes than one thread works on alone, and a length that the ranks cannot share equally.
TEST(Communicator, LargeBuffersInPlace) {
  on_each_world([](Communicator world) {
    const int64_t n = 20001;
    const Tensor x = held_by(world.rank(), {n}, DType::f64);
    const uint32_t version = x.version();
    world.all_reduce_into(x);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(x.data<double>()[i], sum_of(world.size(), i));
    EXPECT_EQ(x.version(), version + (world.size() > 1));
    world.all_reduce_into(x, Reduce::max);  // equal on all ranks: nothing changes
    ASSERT_EQ(x.data<double>()[n - 1], sum_of(world.size(), n - 1));
  });
}

TEST(Communicator, AllGatherLaysPartsSideBySideAlongAnyAxis) {
  on_each_world([](Communicator world) {
    const Shape shape{2, 3, 4};
    for (int dim : {0, 1, 2, -1, -3}) {
      const Tensor y = world.all_gather(held_by(world.rank(), shape), dim);
      const int d = shape.dim(dim, "test");
      const Axis3 part(shape, d), all(y.shape(), d);
      ASSERT_EQ(all.along, part.along * world.size());
      for_each(all, [&](int64_t b, int64_t i, int64_t a) {
        ASSERT_EQ(y.at(all.at(b, i, a)),
                  double(element(int(i / part.along), part.at(b, i % part.along, a))));
      });
    }
  });
}

TEST(Communicator, ReduceScatterKeepsOnePartOfTheSumAlongAnyAxis) {
  on_each_world([](Communicator world) {
    const int n = world.size();
    const Shape shape{2 * n, n, 3 * n};
    for (DType dtype : {DType::f64, DType::bf16, DType::i64})
      for (int dim : {0, 1, 2, -1}) {
        const Tensor y = world.reduce_scatter(held_by(world.rank(), shape, dtype), dim);
        const int d = shape.dim(dim, "test");
        const Axis3 part(y.shape(), d), all(shape, d);
        ASSERT_EQ(part.along * n, all.along);
        for_each(part, [&](int64_t b, int64_t i, int64_t a) {
          ASSERT_EQ(y.at(part.at(b, i, a)), sum_of(n, all.at(b, i + world.rank() * part.along, a)));
        });
      }
  });
}

TEST(Communicator, BroadcastGivesTheRootsValue) {
  on_each_world([](Communicator world) {
    for (int root = 0; root < world.size(); ++root) {
      const Tensor x = held_by(world.rank(), {2, 3}), y = world.broadcast(x, root);
      for (int64_t i = 0; i < 6; ++i) ASSERT_EQ(y.at(i), double(element(root, i)));
      for (int64_t i = 0; i < 6; ++i) ASSERT_EQ(x.at(i), double(element(world.rank(), i)));
      world.broadcast_into(x, root);
      for (int64_t i = 0; i < 6; ++i) ASSERT_EQ(x.at(i), double(element(root, i)));
    }
  });
}

TEST(Communicator, AllToAllCutsAlongOneAxisAndJoinsAlongAnother) {
  on_each_world([](Communicator world) {
    const int n = world.size(), me = world.rank();
    const Shape shape{n, 2 * n, 3};
    for (int cut : {0, 1})
      for (int join : {0, 1, 2, -1}) {
        const Tensor y = world.all_to_all(held_by(me, shape), cut, join);
        Shape part = shape;  // what comes from each rank
        part[cut] /= n;
        const int j = shape.dim(join, "test");
        ASSERT_EQ(y.shape()[j], part[j] * n);
        // Element (i₀, i₁, i₂) of y lies in the part of rank k = i_j / part_j.
        for (int64_t i = 0; i < y.numel(); ++i) {
          int64_t at[3] = {i / (y.size(1) * y.size(2)), i / y.size(2) % y.size(1), i % y.size(2)};
          const int k = int(at[j] / part[j]);
          at[j] %= part[j];
          at[cut] += me * part[cut];
          const int64_t source = (at[0] * shape[1] + at[1]) * shape[2] + at[2];
          ASSERT_EQ(y.at(i), double(element(k, source))) << cut << ' ' << join << ' ' << i;
        }
      }
  });
}

TEST(Communicator, AllToAllTwiceIsTheIdentity) {
  on_each_world([](Communicator world) {
    const int n = world.size();
    const Tensor x = held_by(world.rank(), {2 * n, 3, n}, DType::f16);
    const Tensor y = world.all_to_all(world.all_to_all(x, 2, 0), 0, 2);
    ASSERT_EQ(y.shape(), x.shape());
    EXPECT_EQ(y.to_vector(), x.to_vector());
  });
}

TEST(Communicator, InputsWithGapsAreCopied) {
  on_each_world([](Communicator world) {
    const Tensor x = transpose(held_by(world.rank(), {3, 2}), 0, 1);
    const Tensor sum = world.all_reduce(x), all = world.all_gather(x, 1);
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 3; ++j) {
        ASSERT_EQ(sum.at(3 * i + j), sum_of(world.size(), 2 * j + i));
        for (int r = 0; r < world.size(); ++r)
          ASSERT_EQ(all.at(i * 3 * world.size() + 3 * r + j), double(element(r, 2 * j + i)));
      }
  });
}

TEST(Communicator, IntoMemoryOfTheCaller) {
  on_each_world([](Communicator world) {
    const int n = world.size(), me = world.rank();
    // In place: the part is where it belongs.
    const Tensor all = zeros({n, 4});
    copy_(select(all, 0, me), held_by(me, {4}));
    world.all_gather_into(all, select(all, 0, me));
    for (int r = 0; r < n; ++r)
      for (int64_t i = 0; i < 4; ++i) ASSERT_EQ(all.at(4 * r + i), double(element(r, i)));
    // Shapes do not matter, only how many elements there are.
    const Tensor row = zeros({4 * n});
    world.all_gather_into(row, held_by(me, {2, 2}));
    EXPECT_EQ(row.to_vector(), all.to_vector());
    const Tensor whole = held_by(me, {n, 3}), part = zeros({3});
    world.reduce_scatter_into(part, whole);
    for (int64_t i = 0; i < 3; ++i) ASSERT_EQ(part.at(i), sum_of(n, 3 * me + i));
    world.reduce_scatter_into(select(whole, 0, me), whole);
    for (int64_t i = 0; i < 3; ++i) ASSERT_EQ(whole.at(3 * me + i), sum_of(n, 3 * me + i));
  });
}

TEST(Communicator, MessagesMatchByTagAndKeepTheirOrder) {
  on_each_world([](Communicator world) {
    if (world.size() == 1) return;
    if (world.rank() == 0) {
      world.send(held_by(0, {3}), 1, 7);
      world.send(held_by(1, {2, 2}, DType::i64), 1, 8);
      world.send(held_by(2, {3}), 1, 7);
    }
    if (world.rank() == 1) {
      const Tensor other = zeros({2, 2}, DType::i64), first = zeros({3}), second = zeros({3});
      world.receive_into(other, 0, 8);
      world.receive_into(first, 0, 7);
      world.receive_into(second, 0, 7);
      EXPECT_EQ(other.to_vector(), held_by(1, {2, 2}).to_vector());
      EXPECT_EQ(first.to_vector(), held_by(0, {3}).to_vector());
      EXPECT_EQ(second.to_vector(), held_by(2, {3}).to_vector());
    }
    world.barrier();
  });
}

// Rank r sends to r + 1 and receives from r − 1, all around. The even ones send first, so nobody relies on
// buffers.
TEST(Communicator, ARing) {
  for (bool strict : {false, true})
    on_each_world(
        [](Communicator world) {
          const int n = world.size(), me = world.rank();
          const int next = (me + 1) % n, before = (me + n - 1) % n;
          if (n == 1) return;
          const Tensor x = held_by(me, {5000}, DType::bf16), y = empty_like(x);
          if (me % 2 == 0) world.send(x, next);
          world.receive_into(y, before);
          if (me % 2 == 1) world.send(x, next);
          EXPECT_EQ(y.to_vector(), held_by(before, {5000}, DType::bf16).to_vector());
        },
        {.strict_send = strict});
}

TEST(Communicator, ValuesAndTexts) {
  on_each_world([](Communicator world) {
    std::vector<int64_t> expected;
    for (int r = 0; r < world.size(); ++r) {
      expected.push_back(r);
      expected.push_back(-(int64_t(1) << 60) - r);
    }
    const int64_t me = world.rank();
    EXPECT_EQ(world.all_gather_values({me, -(int64_t(1) << 60) - me}), expected);
    const std::vector<std::string> texts = world.all_gather_text(std::string(size_t(3 * me), 'x'));
    ASSERT_EQ(int(texts.size()), world.size());
    for (int r = 0; r < world.size(); ++r)
      EXPECT_EQ(texts[size_t(r)], std::string(size_t(3 * r), 'x'));
    EXPECT_EQ(world.all_gather_values({}).size(), 0u);
    world.barrier();
  });
}

TEST(Communicator, SplitOrdersByKeyThenByRank) {
  on_each_world([](Communicator world) {
    const int n = world.size(), me = world.rank();
    // Even and odd ranks, each backwards.
    const Communicator half = world.split(me % 2, -me, me % 2 ? "odd" : "even");
    std::vector<int> expected;
    for (int r = n - 1; r >= 0; --r)
      if (r % 2 == me % 2) expected.push_back(r);
    ASSERT_EQ(half.world_ranks(), expected);
    ASSERT_EQ(half.world_ranks()[size_t(half.rank())], me);
    const Tensor all = half.all_gather(full({1}, me));
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(all.at(int64_t(i)), expected[i]);
    // A group of a group; equal keys keep the order.
    const Communicator again = half.split(0, 0, "again");
    EXPECT_EQ(again.world_ranks(), expected);
    EXPECT_TRUE(again == again);
    EXPECT_FALSE(again == half);
    // The first rank alone; the others are in no group.
    const Communicator first = world.split(me == 0 ? 0 : -1, 0, "first");
    EXPECT_EQ(first.size(), 1);
  });
}

// What was added first is lost in f32 (2²⁴ + 1 = 2²⁴) unless what follows is added first: only the order of
// the ranks gives this sum.
TEST(Communicator, SumsAreTakenInTheOrderOfRanks) {
  on_each_world([](Communicator world) {
    if (world.size() != 4) return;
    for (int64_t n : {3, 100000}) {
      const double values[] = {0x1p24, 1, -0x1p24, 1};
      const Tensor y = world.all_reduce(full({n}, values[world.rank()]));
      EXPECT_EQ(y.at(0), 1);
      EXPECT_EQ(y.at(n - 1), 1);
      EXPECT_EQ(world.reduce_scatter(full({4 * n}, values[world.rank()])).at(n - 1), 1);
    }
  });
}

// bf16 has neighbours at a distance of 2⁻⁷ above 1. 1 + 3·2⁻⁹ lies nearer to 1 + 2⁻⁷; rounding after each
// of the three additions would stay at 1.
TEST(Communicator, SixteenBitsAreAddedInF32AndRoundedOnce) {
  on_each_world([](Communicator world) {
    if (world.size() != 4) return;
    for (int64_t n : {5, 100000}) {
      const double mine = world.rank() == 0 ? 1 : 0x1p-9;
      EXPECT_EQ(world.all_reduce(full({n}, mine, DType::bf16)).at(n - 1), 1 + 0x1p-7);
      const double half = world.rank() == 0 ? 1 : 0x1p-12;
      EXPECT_EQ(world.all_reduce(full({n}, half, DType::f16)).at(n - 1), 1 + 0x1p-10);
    }
  });
}

TEST(Communicator, IntegersAreExact) {
  on_each_world([](Communicator world) {
    const int64_t n = world.size();
    const Tensor x = empty({1}, DType::i64);
    x.data<int64_t>()[0] = (int64_t(1) << 60) + world.rank();  // no double holds these
    EXPECT_EQ(world.all_reduce(x).data<int64_t>()[0], n * (int64_t(1) << 60) + n * (n - 1) / 2);
    EXPECT_EQ(world.all_reduce(x, Reduce::max).data<int64_t>()[0], (int64_t(1) << 60) + n - 1);
  });
}

TEST(Communicator, NaNOfOneRankReachesAll) {
  on_each_world([](Communicator world) {
    for (int bad = 0; bad < world.size(); ++bad) {
      const Tensor x = full({2}, world.rank() == bad ? NAN : 1.0);
      EXPECT_TRUE(std::isnan(world.all_reduce(x, Reduce::max).at(0)));
      EXPECT_TRUE(std::isnan(world.all_reduce(x).at(1)));
    }
  });
}

TEST(Communicator, AGroupOfOneIsTheIdentityWithoutCopies) {
  const Communicator one;
  const Tensor x = held_by(3, {4, 2});
  EXPECT_EQ(one.rank(), 0);
  EXPECT_EQ(one.size(), 1);
  EXPECT_EQ(one.describe(), "a group of one");
  EXPECT_TRUE(one.all_reduce(x).is_same(x));
  EXPECT_TRUE(one.all_gather(x, 1).is_same(x));
  EXPECT_TRUE(one.reduce_scatter(x).is_same(x));
  EXPECT_TRUE(one.broadcast(x).is_same(x));
  EXPECT_TRUE(one.all_to_all(x, 0, 1).is_same(x));
  one.all_reduce_into(x);
  one.all_gather_into(x, x);
  const Tensor y = zeros({8});
  one.all_gather_into(y, x);
  EXPECT_EQ(y.to_vector(), x.to_vector());
  EXPECT_EQ(one.all_gather_text("a"), std::vector<std::string>{"a"});
  EXPECT_EQ(one.split(0, 0, "again").size(), 1);
  EXPECT_TRUE(one == Communicator());
  one.barrier();
}

}  // namespace
}  // namespace gradus::parallel
