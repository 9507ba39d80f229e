// Dropout of a part is the part of the dropout of the whole: ranks and micro-batches that each hold a box
// of a tensor drop what one of them with all of it would, exactly, forward and backward.
#include <gtest/gtest.h>

#include <sstream>

#include "ops/ops.h"
#include "tests/devices.h"
#include "tests/ops/flash_helpers.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
const Philox kMask{11, 5};

Tensor numbers(const Shape& shape, DType dtype, Device device, uint64_t seed) {
  Generator g(seed);
  return cast(normal(shape, g, 0, 1, DType::f32, device), dtype).detach();
}
Tensor leaf(const Tensor& x) { return contiguous(x).detach().requires_grad_(); }

/// Columns `from` … `to` − 1 of x (B, T, C), as a box; and which elements of x they are.
struct Box {
  int64_t sample, samples, column, columns;

  Tensor of(const Tensor& x) const {
    return slice(slice(x, 0, sample, sample + samples), 2, column, column + columns);
  }
  IndexMap map(const Tensor& x) const {
    const int64_t T = x.size(1), C = x.size(2);
    return {.first = uint64_t(sample * T * C + column), .run = columns, .stride = C};
  }
};

// Boxes whose fours are fours of the whole, and boxes whose are not; in pieces that begin anywhere.
TEST(DropParts, OfABoxAreThoseOfTheWhole) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      for (int64_t C : {24, 30, 7}) {
        Tensor x = leaf(numbers({5, 9, C}, dtype, device, 1)),
               dy = numbers(x.shape(), dtype, device, 2);
        Tensor y = dropout(x, 0.4, kMask), dx = grad(y, {x}, dy)[0];
        for (const Box& box :
             {Box{0, 5, 4, C - 4}, Box{2, 2, 0, C}, Box{1, 3, 0, 4}, Box{3, 1, 1, 5}}) {
          if (box.column + box.columns > C) continue;
          Tensor part = leaf(box.of(x)), whole = box.of(y);
          Tensor mine = dropout(part, 0.4, kMask, box.map(x));
          ASSERT_EQ(mine.to_vector(), whole.to_vector()) << device << ' ' << dtype << ' ' << C;
          ASSERT_EQ(grad(mine, {part}, box.of(dy))[0].to_vector(), box.of(dx).to_vector());
        }
      }
}

// A whole of some thousand elements a piece: the CPU draws words in pieces of 1024.
TEST(DropParts, OfLongRunsAreThoseOfTheWhole) {
  for (Device device : test_devices()) {
    Tensor x = numbers({3, 2, 4001}, DType::f32, device, 3), y = dropout(x, 0.2, kMask);
    for (const Box& box : {Box{0, 3, 7, 3000}, Box{1, 2, 0, 4001}})
      ASSERT_EQ(dropout(box.of(x), 0.2, kMask, box.map(x)).to_vector(), box.of(y).to_vector());
  }
}

TEST(DropParts, WithoutAMapAreThoseOfAGenerator) {
  Generator g({kMask.seed, kMask.stream});
  Tensor x = ones({1001});
  EXPECT_EQ(dropout(x, 0.3, kMask).to_vector(), dropout(x, 0.3, g).to_vector());
  EXPECT_THROW(dropout(x, 0.3, kMask, {.run = 3, .stride = 2}), Error);
}

/// Equal; on a GPU up to the order of sums: products may take other kernels, and rows that begin elsewhere are
/// summed in other pieces. An element that is kept by one alone is an error of its size, about 1.
void expect_same(const Tensor& part, const Tensor& whole, const std::string& what) {
  if (part.device().is_cuda())
    ASSERT_LT(error_of(part, whole), 8 * roundoff(part.dtype())) << what;
  else
    ASSERT_EQ(part.to_vector(), whole.to_vector()) << what;
}

// Rows of a residual stream, in all kernels: rows that are held, 8 and 4 to a pack, and rows that are
// streamed; row 3 of 6 or 7 elements begins between two fours.
template <bool kCentred>
void compare_rows() {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      for (int64_t C : {64, 6, 7, 1056}) {
        Tensor x = leaf(numbers({8, C}, dtype, device, 4)),
               y = leaf(numbers({8, C}, dtype, device, 5));
        Tensor ds = numbers({8, C}, dtype, device, 6), dn = numbers({8, C}, dtype, device, 7);
        Tensor b = numbers({C}, dtype, device, 8), gamma = numbers({C}, dtype, device, 9);
        const auto run = [&](const Tensors& in, const Tensors& gradients,
                             uint64_t first) -> Tensors {
          AddNormOptions o{.dropout = 0.4, .mask = kMask, .first_element = first};
          AddNorm n = kCentred ? add_layer_norm(in[0], in[1], b, gamma, {}, o)
                               : add_rms_norm(in[0], in[1], b, gamma, o);
          Tensors d =
              grad(sum(cast(n.sum * gradients[0] + n.normal * gradients[1], DType::f32)), in);
          return {n.sum, n.normal, d[0], d[1]};
        };
        Tensors whole = run({x, y}, {ds, dn}, 0);
        for (auto [from, to] : {std::pair{0, 3}, std::pair{3, 8}, std::pair{4, 6}}) {
          const auto rows = [&, from = from, to = to](const Tensor& t) {
            return slice(t, 0, from, to);
          };
          Tensors part =
              run({leaf(rows(x)), leaf(rows(y))}, {rows(ds), rows(dn)}, uint64_t(from * C));
          std::ostringstream what;
          what << "rows " << from << " to " << to << " of " << C << ", " << dtype << " on "
               << device;
          ASSERT_EQ(part[0].to_vector(), rows(whole[0]).to_vector()) << what.str();  // no sums
          for (size_t i = 1; i < whole.size(); ++i)
            expect_same(part[i], rows(whole[i]), what.str());
        }
      }
}
TEST(DropParts, OfRowsBeforeALayerNormAreThoseOfTheWhole) { compare_rows<true>(); }
TEST(DropParts, OfRowsBeforeAnRmsNormAreThoseOfTheWhole) { compare_rows<false>(); }

/// Packed heads (B, T, G, n + 2, d), and what attention makes of them.
struct Heads {
  Tensor packed, dy;

  Heads(const FlashCase& c, DType dtype, Device device)
      : packed(numbers({c.B, c.Tq, c.groups, c.members + 2, c.d}, dtype, device, 10)),
        dy(numbers({c.B, c.Tq, c.groups * c.members * c.d}, dtype, device, 11)) {}

  /// o and the gradient of `packed`, of the samples and groups from the given ones on.
  struct Cut {
    int64_t sample, samples, group, groups;
  };
  Tensors run(const Cut& cut, const Tensor& mask = {}) const {
    const int64_t G = packed.size(2), n = packed.size(3) - 2;
    Generator g({kMask.seed, kMask.stream});
    SelfAttentionOptions o{{.causal = true, .dropout = 0.3, .generator = &g}};
    o.head_rows = {.first = uint64_t(cut.sample * G * n + cut.group * n),
                   .run = cut.groups * n,
                   .stride = G * n};
    if (mask) o.mask = slice(mask, 0, cut.sample, cut.sample + cut.samples);
    Tensor x = leaf(box(packed, cut));
    Tensor y = self_attention(x, o);
    return {y, grad(y, {x}, contiguous(box_of_output(dy, cut)))[0]};
  }
  static Tensor box(const Tensor& x, const Cut& c) {
    return slice(slice(x, 0, c.sample, c.sample + c.samples), 2, c.group, c.group + c.groups);
  }
  Tensor box_of_output(const Tensor& y, const Cut& c) const {
    const int64_t width = y.size(2) / packed.size(2);
    return slice(slice(y, 0, c.sample, c.sample + c.samples), 2, c.group * width,
                 (c.group + c.groups) * width);
  }
};

void expect_parts(const Heads& heads, const Tensor& mask = {}) {
  const int64_t B = heads.packed.size(0), G = heads.packed.size(2);
  Tensors whole = heads.run({0, B, 0, G}, mask);
  using Cut = Heads::Cut;
  for (const Cut& cut : {Cut{0, B, 1, G - 1}, Cut{1, B - 1, 0, G}, Cut{1, 1, 1, 1}}) {
    SCOPED_TRACE(testing::Message() << "from sample " << cut.sample << ", group " << cut.group);
    Tensors part = heads.run(cut, mask);
    expect_same(part[0], heads.box_of_output(whole[0], cut), "o");
    expect_same(part[1], Heads::box(whole[1], cut), "gradients");
  }
}

// In f64 and f32 the scores are stored, or on the CPU computed in blocks; in 16 bits with heads of 64 a GPU
// computes them in flash attention. 61 keys are no multiple of four.
TEST(DropParts, OfHeadsAndSamplesAreThoseOfTheWhole) {
  for (Device device : test_devices())
    for (DType dtype : kFloatingTypes)
      for (int64_t T : {20, 61}) {
        SCOPED_TRACE(testing::Message() << dtype << " on " << device << ", length " << T);
        expect_parts(Heads({3, 3, 2, T, T, 64, true}, dtype, device));
      }
}

TEST(DropParts, OfHeadsUnderAMaskAreThoseOfTheWhole) {
  for (Device device : test_devices())
    for (DType dtype : {DType::f64, DType::bf16}) {
      Generator g(12);
      Tensor draws = uniform({3, 1, 1, 21}, g, 0, 1, DType::f32, device);
      expect_parts(Heads({3, 2, 1, 21, 21, 8, true}, dtype, device),
                   greater(draws, full({}, 0.3, DType::f32, device)));
    }
}

// Larger than a block of queries and of keys, with heads of both sizes.
TEST(DropParts, OfFlashAttentionAreThoseOfTheWhole) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  for (int64_t d : {64, 128})
    for (int64_t T : {160, 202}) expect_parts(Heads({2, 3, 2, T, T, d, true}, DType::bf16, kCuda));
}

}  // namespace
}  // namespace gradus
