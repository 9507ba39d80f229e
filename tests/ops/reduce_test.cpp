// Values and derivatives of reductions. Sums are compared with a sum in f64: a balanced tree of n
// summands passes each through at most log2(n) + 40 roundings (see Note [order of reductions]), so that
// |error| ≤ (log2(n) + 40) u Σ|x|.
#include "ops/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "autograd/accumulate.h"
#include "autograd/gradcheck.h"
#include "autograd/node.h"
#include "core/allocator.h"

namespace gradus {
namespace {

std::vector<Device> devices() {
  return cuda_device_count() > 0 ? std::vector<Device>{kCpu, kCuda} : std::vector<Device>{kCpu};
}

Tensor made(const std::vector<double>& values, const Shape& shape, DType dtype = DType::f32,
            Device device = kCpu) {
  Tensor host = empty(shape, dtype);
  for (int64_t i = 0; i < host.numel(); ++i) host.set(i, values[size_t(i)]);
  if (!device.is_cuda()) return host;
  Tensor there = empty(shape, dtype, device);
  copy_bytes(there.raw(), device, host.raw(), kCpu, size_t(bytes_of(host)));
  return there;
}

/// Uneven values in [−1, 1) that all dtypes represent: multiples of 1/16.
std::vector<double> uneven(int64_t n) {
  std::vector<double> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[size_t(i)] = double((i * 2654435761u >> 7) % 32) / 16 - 1;
  return v;
}

double sum_of(const std::vector<double>& v, bool absolute = false) {
  long double s = 0;
  for (double x : v) s += absolute ? std::abs(x) : x;
  return double(s);
}

using Values = std::vector<double>;

TEST(Sum, OfSmallMatrixByHand) {
  for (Device device : devices()) {
    Tensor x = made({1, 2, 3, 4, 5, 6}, {2, 3}, DType::f64, device);
    EXPECT_EQ(sum(x).to_vector(), Values{21});
    EXPECT_EQ(sum(x).shape(), Shape({}));
    EXPECT_EQ(sum(x, {0}).to_vector(), (Values{5, 7, 9}));
    EXPECT_EQ(sum(x, {1}).to_vector(), (Values{6, 15}));
    EXPECT_EQ(sum(x, {-1}, true).shape(), Shape({2, 1}));
    EXPECT_EQ(mean(x, {1}).to_vector(), (Values{2, 5}));
    EXPECT_EQ(mean(x).item(), 3.5);
  }
}

// Every loop of the engine: lanes, leaves, blocks, columns, several merged or interleaved dims, with
// sizes that fit no vector and no block.
TEST(Sum, OfEveryLayoutIsAccurate) {
  struct Case {
    Shape shape;
    Dims dims;
  };
  const Case cases[] = {
      {{7}, {}},
      {{140001}, {}},
      {{5, 1027}, {1}},
      {{2, 70000}, {1}},
      {{1027, 5}, {0}},
      {{1027, 130}, {0}},
      {{300, 517}, {0}},
      {{6, 40, 33}, {0, 2}},
      {{4, 129, 40}, {1}},
      {{70, 3, 130}, {0, 2}},
      {{2, 3, 4, 5, 6, 7}, {1, 3, 5}},
      {{9000, 8}, {0}},
  };
  for (Device device : devices())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Case& c : cases) {
        Tensor x = made(uneven(c.shape.numel()), c.shape, dtype, device);
        Tensor exact = sum(made(uneven(c.shape.numel()), c.shape, DType::f64), c.dims);
        std::vector<double> got = sum(x, c.dims).to_vector(), want = exact.to_vector();
        double n = double(c.shape.numel()) / double(want.size());
        double sum_error = (std::log2(n) + 40) * std::min(roundoff(dtype), 0x1p-24) * n;
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], sum_error + roundoff(dtype) * std::abs(want[i]))
              << c.shape << ' ' << dtype << ' ' << device << " element " << i;
      }
}

TEST(Sum, OfF64IsThatOfLongDouble) {
  Values v = uneven(200000);
  for (double& x : v) x *= 1.1;  // no longer exact
  double bound = (18 + 40) * 0x1p-53 * sum_of(v, true);
  EXPECT_NEAR(sum(made(v, {200000}, DType::f64)).item(), sum_of(v), bound);
  EXPECT_NEAR(sum(sum(made(v, {400, 500}, DType::f64), {0})).item(), sum_of(v), 2 * bound);
}

TEST(Sum, DoesNotDependOnTheNumberOfThreads) {
  Values v = uneven(300 * 1000);
  for (double& x : v) x *= 1.1;
  int before = omp_get_max_threads();
  std::vector<Values> results;
  for (int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    Tensor x = made(v, {300, 1000});
    Values all = sum(x).to_vector(), columns = sum(x, {0}).to_vector(),
           rows = sum(x, {1}).to_vector();
    all.insert(all.end(), columns.begin(), columns.end());
    all.insert(all.end(), rows.begin(), rows.end());
    results.push_back(all);
  }
  omp_set_num_threads(before);
  for (const Values& r : results) EXPECT_EQ(r, results[0]);
}

// The input in other places of memory: transposed, every second element, expanded, at an offset.
TEST(Sum, G6_OfViewsIsThatOfTheirCopies) {
  Tensor x = made(uneven(6 * 7 * 10), {6, 7, 10}, DType::f64);
  const Tensor views[] = {transpose(x, 0, 2),
                          transpose(x, 1, 2),
                          slice(x, 2, 1, 10, 2),
                          slice(x, 0, 1, 6, 2),
                          expand(slice(x, 1, 3, 4), {6, 5, 10}),
                          select(x, 1, 2),
                          permute(x, {2, 0, 1})};
  for (const Tensor& view : views) {
    Tensor copy = clone_values(view);
    for (Dims dims : {Dims{}, Dims{0}, Dims{1}, Dims{0, 1}, Dims{-1}}) {
      Values got = sum(view, dims).to_vector(), want = sum(copy, dims).to_vector();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-13 * 420);
    }
  }
}

TEST(Sum, N17_OfManyBf16OnesIsExact) {
  for (Device device : devices())
    for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      int64_t n = dtype == DType::f16 ? 32768 : 65536;  // f16 ends at 65504
      Tensor x = made(Values(size_t(n), 1.0), {n}, dtype, device);
      EXPECT_EQ(sum(x).item(), double(n));
      EXPECT_EQ(sum(reshape(x, {n, 1})).item(), double(n));
      EXPECT_EQ(sum(reshape(x, {n / 8, 8}), {0}).to_vector(), Values(8, double(n / 8)));
      EXPECT_EQ(mean(x).item(), 1);
    }
}

TEST(Sum, N6_BiasGradientOfManyBf16RowsIsAccurate) {
  for (Device device : devices()) {
    Values v = uneven(8192 * 24);
    for (double& x : v) x += 1.5;  // sums of about 12,000: an accumulator in bf16 would stop at 256
    Values got = sum(made(v, {8192, 24}, DType::bf16, device), {0}).to_vector();
    Values want = sum(made(v, {8192, 24}, DType::f64), {0}).to_vector();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 0x1p-8 * want[i]);
  }
}

TEST(Sum, N15_OfSizesWithZero) {
  for (Device device : devices()) {
    Tensor x = made({}, {3, 0, 2}, DType::f32, device).requires_grad_();
    EXPECT_EQ(sum(x, {1}).to_vector(), Values(6, 0.0));
    EXPECT_EQ(sum(x, {0}).shape(), Shape({0, 2}));
    EXPECT_EQ(mean(x, {0}).shape(), Shape({0, 2}));
    Tensor y = sum(x);
    EXPECT_EQ(y.item(), 0);
    y.backward();
    EXPECT_EQ(x.grad().shape(), x.shape());
  }
}

TEST(Sum, OfNothingListedTwice) {
  Tensor x = made({1, 2}, {1, 2});
  EXPECT_THROW(sum(x, {1, -1}), Error);
  EXPECT_THROW(sum(x, {2}), Error);
  EXPECT_THROW(sum(Tensor()), Error);
  EXPECT_THROW(sum(made({1}, {1}, DType::i64)), Error);
}

// ---- sum_to

TEST(SumTo, SameShapeIsTheSameTensor) {
  Tensor x = made({1, 2}, {2}).requires_grad_();
  int64_t nodes = Node::alive();
  EXPECT_TRUE(sum_to(x, {2}).is_same(x));
  EXPECT_EQ(Node::alive(), nodes);
}

// All pairs of up to 4 dimensions, with sizes of 1 in every combination.
TEST(SumTo, G1_UndoesEveryBroadcast) {
  const int64_t full[] = {2, 3, 2, 4};
  for (int rank = 0; rank <= 4; ++rank)
    for (int small = 0; small <= rank; ++small)
      for (int ones = 0; ones < 1 << small; ++ones) {
        Shape big, shape;
        for (int d = 4 - rank; d < 4; ++d) big.push_back(full[d]);
        for (int d = 0; d < small; ++d) shape.push_back(ones >> d & 1 ? 1 : full[4 - small + d]);
        Tensor c = made(uneven(big.numel()), big, DType::f64);
        Tensor x = made(uneven(shape.numel()), shape, DType::f64).requires_grad_();
        expand(x, big).backward(c);
        ASSERT_EQ(x.grad().shape(), shape);
        Values want(size_t(shape.numel()), 0.0);
        Tensor place = made(Values(size_t(shape.numel()), 0.0), shape, DType::f64);
        for (int64_t i = 0; i < place.numel(); ++i) place.set(i, double(i));
        Values index = expand(place, big).to_vector(), values = c.to_vector();
        for (size_t i = 0; i < index.size(); ++i) want[size_t(index[i])] += values[i];
        EXPECT_EQ(x.grad().to_vector(), want) << big << " to " << shape;
      }
}

TEST(SumTo, RefusesWhatWasNotBroadcast) {
  Tensor x = made(uneven(6), {2, 3});
  EXPECT_THROW(sum_to(x, {2}), Error);
  EXPECT_THROW(sum_to(x, {1, 2, 3}), Error);
}

TEST(Mean, N16_OfNothingIsAnError) {
  Tensor x = made({}, {3, 0, 2});
  try {
    mean(x, {1});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("mean of no elements: shape (3, 0, 2)"),
              std::string::npos);
  }
}

TEST(Mean, GradientByHand) {
  Tensor x = made({1, 2, 3, 4, 5, 6}, {2, 3}, DType::f64).requires_grad_();
  mean(x, {1}).backward(made({0.3, -0.9}, {2}, DType::f64));
  EXPECT_EQ(x.grad().to_vector(),
            (Values{0.3 / 3, 0.3 / 3, 0.3 / 3, -0.9 / 3, -0.9 / 3, -0.9 / 3}));
}

// ---- prod

TEST(Prod, N8_GradientWithZeros) {
  struct Case {
    Values x, dx;
  };
  const Case cases[] = {{{2, 3, 4}, {12, 8, 6}}, {{0, 2, 3}, {6, 0, 0}}, {{0, 0, 5}, {0, 0, 0}}};
  for (Device device : devices())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Case& c : cases) {
        Tensor x = made(c.x, {3}, dtype, device).requires_grad_();
        Tensor y = prod(x);
        EXPECT_EQ(y.item(), c.x[0] * c.x[1] * c.x[2]);
        y.backward();
        EXPECT_EQ(x.grad().to_vector(), c.dx);
      }
}

TEST(Prod, GradientStaysFiniteWhereTheProductDoesNot) {
  Tensor x = made({300, 300, 300}, {3}, DType::f16).requires_grad_();
  Tensor y = prod(x);
  EXPECT_EQ(y.item(), INFINITY);  // 2.7e7 > 65504
  y.backward(made({1.0 / 1024}, {}, DType::f16));
  for (double g : x.grad().to_vector()) EXPECT_NEAR(g, 90000.0 / 1024, 90000.0 / 1024 * 0x1p-11);
}

TEST(Prod, N16_OfNothingIsOne) {
  EXPECT_EQ(prod(made({}, {0})).item(), 1);
  EXPECT_EQ(sum(made({}, {0})).item(), 0);
  EXPECT_EQ(prod(made({}, {2, 0}), {1}).to_vector(), (Values{1, 1}));
}

// ---- var

TEST(Var, ByHand) {
  for (Device device : devices()) {
    Tensor x = made({1, 2, 4, -3, 2, 2, 2, 2}, {2, 4}, DType::f64, device).requires_grad_();
    EXPECT_EQ(var(x, {1}).to_vector(), (Values{6.5, 0}));  // mean 1, squares 0 + 1 + 9 + 16
    Tensor y = var(x, {1}, false, 1);
    EXPECT_EQ(y.to_vector(), (Values{26.0 / 3, 0}));
    y.backward(made({0.3, -0.7}, {2}, DType::f64, device));
    Values want{0, 0.2, 0.6, -0.8, 0, 0, 0, 0};  // 0.3 · 2/3 · (x − 1)
    Values got = x.grad().to_vector();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-15);
  }
}

// Σx² − (Σx)²/n would lose everything here: x² ~ 1e8 has a spacing of 8 in f32. With running means,
// rounded to u μ, each (x − μ)² is off by 2 |x − μ| u μ: relative to the variance, 2 u μ/σ.
TEST(Var, OfSmallDeviationsFromALargeMeanIsAccurate) {
  for (Device device : devices())
    for (Shape shape : {Shape{100000}, Shape{100000, 8}}) {
      Values v = uneven(shape.numel());
      for (double& x : v) x = 10000 + std::round(x * 8) / 8;  // exact in f32: spacing 2⁻¹⁰
      Values got = var(made(v, shape, DType::f32, device), {0}).to_vector();
      Values want = var(made(v, shape, DType::f64), {0}).to_vector();
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 2 * 0x1p-24 * 1e4 / std::sqrt(want[i]) * want[i]);
    }
}

TEST(Var, OfTooFewIsAnError) {
  EXPECT_THROW(var(made({1}, {1}), {}, false, 1), Error);
  EXPECT_THROW(var(made({}, {0, 3}), {0}), Error);
}

// Multiples of 1/16 below 2²⁴/16 in sum: exact in f32, in whatever order they are added.
TEST(SumRowsInto, IsExactWhereSumsAre) {
  for (Device device : devices())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (auto [rows, n] : {std::array<int64_t, 2>{5, 3}, {1, 1}, {0, 4}, {6, 0}, {333, 1},
                             {700, 24}, {1100, 264}, {9000, 8}, {200, 1030}}) {
        SCOPED_TRACE(testing::Message() << device << " " << dtype << " " << rows << " × " << n);
        std::vector<double> values = uneven(rows * n), expected(size_t(n), 0);
        for (int64_t i = 0; i < rows * n; ++i) expected[size_t(i % n)] += values[size_t(i)];
        Tensor x = made(values, {rows, n}, dtype, device);
        Tensor y = full({n}, NAN, dtype == DType::f64 ? DType::f64 : DType::f32, device);
        sum_rows_into(y, x, 0);
        EXPECT_EQ(y.to_vector(), expected);
        for (double& e : expected) e *= 2;
        sum_rows_into(y, x, 1);
        EXPECT_EQ(y.to_vector(), expected);
      }
}

// Rows that do not follow each other evenly, and a start that is not aligned to 16 bytes.
TEST(SumRowsInto, ReadsAnyStrides) {
  for (Device device : devices())
    for (int64_t skip : {0, 3, 8}) {
      Tensor x = made(uneven(5 * 9 * 40), {5, 9, 40}, DType::bf16, device);
      x = slice(slice(x, 1, 2, 8), 2, skip, skip + 24);
      Tensor y = empty({24}, DType::f32, device);
      sum_rows_into(y, x, 0);
      EXPECT_EQ(y.to_vector(), sum(cast(x, DType::f64), {0, 1}).to_vector()) << skip;
    }
}

}  // namespace
}  // namespace gradus
