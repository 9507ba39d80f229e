#include "train/box.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

TEST(Box, IntersectionByHand) {
  const Box a{{0, 2}, {4, 3}}, b{{1, 0}, {2, 3}};
  EXPECT_EQ(intersect(a, b), (Box{{1, 2}, {2, 1}}));
  EXPECT_EQ(intersect(a, Box{{0, 0}, {4, 2}}), std::nullopt);  // they touch
  EXPECT_EQ(intersect(a, Box{{0, 2}, {0, 3}}), std::nullopt);  // nothing in it
  EXPECT_EQ(intersect(Box{}, Box{}), Box{});                   // two scalars
}

TEST(Box, C5_AnExactTilingHasNoFault) {
  const std::vector<Box> four{
      {{0, 0}, {2, 2}}, {{2, 0}, {1, 5}}, {{0, 2}, {2, 3}}, {{3, 0}, {1, 5}}};
  EXPECT_EQ(tiling_fault({4, 5}, four), "");
  EXPECT_EQ(tiling_fault({}, std::vector<Box>{{}}), "");  // a scalar
  EXPECT_EQ(tiling_fault({0, 3}, std::vector<Box>{{{0, 0}, {0, 3}}}), "");
  EXPECT_EQ(tiling_fault({0, 3}, std::vector<Box>{}), "");
}

TEST(Box, C5_OverlapHoleAndOutsideAreFaults) {
  // An overlap and a hole of the same volume: counting elements alone would accept it.
  const std::vector<Box> overlap{{{0}, {3}}, {{2}, {3}}};
  EXPECT_TRUE(holds(tiling_fault({6}, overlap), {"overlap", "(3,) at (0,)", "(3,) at (2,)"}));
  EXPECT_EQ(tiling_fault({6}, std::vector<Box>{{{0}, {2}}, {{4}, {2}}}),
            "its pieces hold 4 of 6 elements");
  for (const Box& outside : {Box{{4}, {3}}, Box{{-1}, {2}}, Box{{0, 0}, {6, 1}}})
    EXPECT_TRUE(holds(tiling_fault({6}, std::vector<Box>{outside}), {"not inside (6,)"}));
}

// Cut (4, 5, 6) into boxes one way, reassemble every box of another cut, compare each element with
// its global number.
TEST(Box, CopiesBetweenAnyTwoCuts) {
  const Shape shape{4, 5, 6};
  const auto cut = [&](Shape pieces) {
    std::vector<Box> boxes;
    for (int64_t i = 0; i < pieces[0]; ++i)
      for (int64_t j = 0; j < pieces[1]; ++j)
        for (int64_t k = 0; k < pieces[2]; ++k) {
          Box box;
          const int64_t index[] = {i, j, k};
          for (int d = 0; d < 3; ++d) {
            const int64_t begin = index[d] * shape[d] / pieces[d];
            box.offset.push_back(begin);
            box.shape.push_back((index[d] + 1) * shape[d] / pieces[d] - begin);
          }
          boxes.push_back(box);
        }
    return boxes;
  };
  const auto numbers = [&](const Box& b) {
    std::vector<float> values;
    for (int64_t i = 0; i < b.shape[0]; ++i)
      for (int64_t j = 0; j < b.shape[1]; ++j)
        for (int64_t k = 0; k < b.shape[2]; ++k)
          values.push_back(float(((b.offset[0] + i) * 5 + b.offset[1] + j) * 6 + b.offset[2] + k));
    return values;
  };
  for (const Shape& from : {Shape{1, 1, 1}, Shape{2, 1, 3}, Shape{4, 5, 1}, Shape{3, 2, 4}})
    for (const Shape& to : {Shape{1, 1, 1}, Shape{1, 3, 2}, Shape{2, 2, 5}}) {
      EXPECT_EQ(tiling_fault(shape, cut(from)), "");
      for (const Box& want : cut(to)) {
        std::vector<float> got(size_t(want.numel()), -1);
        for (const Box& stored : cut(from))
          if (const auto part = intersect(stored, want))
            copy_part(*part, reinterpret_cast<const std::byte*>(numbers(stored).data()), stored,
                      reinterpret_cast<std::byte*>(got.data()), want, 4);
        EXPECT_EQ(got, numbers(want)) << want << " from " << from;
      }
    }
}

// Every run of elements of every shape, against the numbers of its elements.
TEST(Box, ARunOfElementsIsAFewContiguousBoxes) {
  for (const Shape& shape :
       {Shape{}, Shape{7}, Shape{4, 5}, Shape{1, 6}, Shape{6, 1}, Shape{3, 2, 4}})
    for (int64_t begin = 0; begin <= shape.numel(); ++begin)
      for (int64_t end = begin; end <= shape.numel(); ++end) {
        const std::vector<Box> boxes = boxes_of(shape, begin, end);
        EXPECT_LE(int(boxes.size()), std::max(2 * shape.rank() - 1, 1));
        int64_t next = begin;
        for (const Box& box : boxes) {
          EXPECT_TRUE(lies_in(box, shape));
          EXPECT_EQ(position(shape, box.offset), next) << box << " of " << shape;
          Shape last = box.offset;
          for (int d = 0; d < shape.rank(); ++d) last[d] += box.shape[d] - 1;
          EXPECT_EQ(position(shape, last), next + box.numel() - 1) << box << " has gaps";
          next += box.numel();
        }
        EXPECT_EQ(next, end) << shape << " from " << begin;
      }
}

TEST(Box, CopiesAScalar) {
  const double from = 2.5;
  double to = 0;
  copy_part({}, reinterpret_cast<const std::byte*>(&from), {}, reinterpret_cast<std::byte*>(&to),
            {}, 8);
  EXPECT_EQ(to, 2.5);
}

}  // namespace
}  // namespace gradus::train
