// The matrix product against three nested loops: every dtype, transpose, α, β, batch and edge.
//
// Two kinds of numbers. Small integers: every partial sum is exact in f32, in whatever order, so the
// result must be the exact sum rounded once, bit for bit. Uneven reals: with S = |α| Σ|a||b| + |β c|
// and u the roundoff that sums are formed in, k products and sums, α and β leave an error of at most
// (k + 4) u S [Higham 2002, §3.1], to which rounding C adds u_C |C|.
#include "ops/gemm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace gradus {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Numbers = double (*)(int64_t i);
double integers(int64_t i) { return double((i * 7919 + i / 13) % 5) - 2; }
double reals(int64_t i) { return std::sin(1.0 + 0.7 * double(i)) + 0.01 * double(i % 7); }

/// Rows as stored of op(X) (rows, columns).
struct Stored {
  int64_t rows, columns;
  Stored(bool transpose, int64_t r, int64_t c)
      : rows(transpose ? c : r), columns(transpose ? r : c) {}
};

template <class T>
std::vector<T> filled(int64_t size, Numbers numbers, int64_t seed) {
  std::vector<T> v(size);
  for (int64_t i = 0; i < size; ++i) v[i] = T(Compute<T>(numbers(i + seed)));
  return v;
}

/// op(X)(i, j) of a matrix with rows `ld` apart.
template <class T>
double at(const T* x, bool transpose, int64_t ld, int64_t i, int64_t j) {
  return double(Compute<T>(transpose ? x[j * ld + i] : x[i * ld + j]));
}

struct Expected {
  double value, magnitude;  // α Σ ab + β c, and the same of absolute values
};

template <class T, class C>
Expected expected(const Gemm& g, const T* a, const T* b, const C* c, int64_t i, int64_t j) {
  Expected e{0, 0};
  for (int64_t p = 0; p < g.k; ++p) {
    double term = at(a, g.transpose_a, g.lda, i, p) * at(b, g.transpose_b, g.ldb, p, j);
    e.value += term;
    e.magnitude += std::abs(term);
  }
  e = {g.alpha * e.value, std::abs(g.alpha) * e.magnitude};
  if (g.beta != 0) {
    double old = g.beta * at(c, false, g.ldc, i, j);
    e = {e.value + old, e.magnitude + std::abs(old)};
  }
  return e;
}

std::string describe(const Gemm& g) {
  std::ostringstream out;
  out << (g.transpose_a ? "Aᵀ " : "A ") << (g.transpose_b ? "Bᵀ" : "B") << " m " << g.m << " n "
      << g.n << " k " << g.k << " α " << g.alpha << " β " << g.beta << " batch " << g.batch << " "
      << g.type << "→" << g.type_c;
  return out.str();
}

/// Runs g on operands of type T and compares every element of C, and the gaps between its rows.
template <class T, class C>
void compare(Gemm g, Numbers numbers) {
  g.type = dtype_of<T>;
  g.type_c = dtype_of<C>;
  SCOPED_TRACE(describe(g));
  Stored sa(g.transpose_a, g.m, g.k), sb(g.transpose_b, g.k, g.n);
  auto a = filled<T>(sa.rows * g.lda + g.batch * g.stride_a, numbers, 1);
  auto b = filled<T>(sb.rows * g.ldb + g.batch * g.stride_b, numbers, 2);
  auto before = filled<C>(g.m * g.ldc + g.batch * g.stride_c, numbers, 3);
  if (g.beta == 0)
    for (C& x : before) x = C(kNan);
  auto c = before;
  gemm_cpu(g, a.data(), b.data(), c.data());

  bool exact = numbers == Numbers(integers);
  double u = roundoff(dtype_of<Compute<T>>), u_c = roundoff(dtype_of<C>);
  std::vector<bool> written(c.size());
  for (int64_t s = 0; s < g.batch; ++s)
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        auto e = expected(g, a.data() + s * g.stride_a, b.data() + s * g.stride_b,
                          before.data() + s * g.stride_c, i, j);
        int64_t at = s * g.stride_c + i * g.ldc + j;
        written[at] = true;
        double got = double(Compute<C>(c[at]));
        // Twice the bound for f64, whose reference rounds as well.
        double bound = 2 * double(g.k + 4) * u * e.magnitude + u_c * std::abs(e.value);
        double want = exact ? double(Compute<C>(C(Compute<C>(e.value)))) : e.value;
        ASSERT_TRUE(std::abs(got - want) <= (exact ? 0 : bound))
            << "C(" << i << ", " << j << ") of matrix " << s << ": " << got << ", expected "
            << want;
      }
  for (size_t i = 0; i < c.size(); ++i)
    ASSERT_TRUE(written[i] || std::memcmp(&c[i], &before[i], sizeof(C)) == 0)
        << "wrote beyond C at " << i;
}

/// A Gemm whose rows lie `gap` elements further apart than their width.
Gemm sized(int64_t m, int64_t n, int64_t k, bool ta, bool tb, int64_t gap = 0) {
  Gemm g{.transpose_a = ta, .transpose_b = tb, .m = m, .n = n, .k = k};
  g.lda = (ta ? m : k) + gap;
  g.ldb = (tb ? k : n) + gap;
  g.ldc = n + gap;
  return g;
}

void compare_all_types(const Gemm& g, Numbers numbers) {
  compare<double, double>(g, numbers);
  compare<float, float>(g, numbers);
  compare<bf16, bf16>(g, numbers);
  compare<bf16, float>(g, numbers);
  compare<f16, f16>(g, numbers);
  compare<f16, float>(g, numbers);
}

template <class F>
void each_transpose(F&& f) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) f(ta, tb);
}

TEST(Gemm, HandComputed) {
  // ⎡1 2⎤ ⎡5 6⎤   ⎡19 22⎤
  // ⎣3 4⎦ ⎣7 8⎦ = ⎣43 50⎦,   2 A B + 10 C
  float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, c[] = {1, 1, 1, 1};
  Gemm g{.m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .alpha = 2, .beta = 10};
  gemm_cpu(g, a, b, c);
  EXPECT_EQ(c[0], 48);
  EXPECT_EQ(c[1], 54);
  EXPECT_EQ(c[2], 96);
  EXPECT_EQ(c[3], 110);
}

TEST(Gemm, SmallSizesAreExact) {
  for (int64_t m : {1, 2, 5, 7, 17})
    for (int64_t n : {1, 3, 8, 33})
      for (int64_t k : {1, 2, 9, 32})
        each_transpose(
            [&](bool ta, bool tb) { compare_all_types(sized(m, n, k, ta, tb), integers); });
}

TEST(Gemm, OddSizesAndGapsAreExact) {
  for (double beta : {0.0, 1.0, -2.0})
    each_transpose([&](bool ta, bool tb) {
      Gemm g = sized(43, 71, 37, ta, tb, 5);
      g.alpha = 2;
      g.beta = beta;
      compare_all_types(g, integers);
    });
}

// Beyond one block of k, of columns, of rows; rows a power of two apart; one row or column.
TEST(Gemm, LargeSizesAreExact) {
  each_transpose([](bool ta, bool tb) {
    for (double beta : {0.0, 1.0})
      for (auto [m, n, k, gap] : {std::array{145, 70, 300, 3},
                                  {150, 520, 20, 0},
                                  {15, 33, 512, 0},
                                  {512, 33, 15, 0},
                                  {1, 300, 300, 3},
                                  {300, 1, 300, 0},
                                  {3, 5, 4000, 1}}) {
        Gemm g = sized(m, n, k, ta, tb, gap);
        g.beta = beta;
        compare<float, float>(g, integers);
        compare<double, double>(g, integers);
        compare<bf16, float>(g, integers);
        compare<f16, f16>(g, integers);
      }
  });
}

TEST(Gemm, FewRowsOrColumnsAreExact) {
  for (int few : {1, 2, 3, 4, 5})
    each_transpose([&](bool ta, bool tb) {
      for (auto [m, n] : {std::array{few, 21}, {21, few}}) {
        Gemm g = sized(m, n, 45, ta, tb, 2);
        g.alpha = 2;
        g.beta = -1;
        g.batch = 2;
        g.stride_a = 3000;
        g.stride_b = 0;
        g.stride_c = 2500;
        compare_all_types(g, integers);
      }
    });
}

// A column as stored, elements next to each other, is a row as well.
TEST(Gemm, ColumnTimesRowAndRowTimesColumn) {
  Gemm outer{.m = 9, .n = 11, .k = 1, .lda = 1, .ldb = 11, .ldc = 11};
  compare_all_types(outer, integers);
  Gemm inner{.transpose_a = true, .m = 1, .n = 1, .k = 100, .lda = 1, .ldb = 1, .ldc = 1};
  compare_all_types(inner, integers);
}

TEST(Gemm, RealsWithinTheRoundingBound) {
  for (double beta : {0.0, 1.0, 0.3})
    each_transpose([&](bool ta, bool tb) {
      Gemm g = sized(19, 37, 300, ta, tb, 1);
      g.alpha = -0.7;
      g.beta = beta;
      compare_all_types(g, reals);
    });
}

TEST(Gemm, Batches) {
  each_transpose([](bool ta, bool tb) {
    for (double beta : {0.0, 1.0}) {
      Gemm g = sized(19, 23, 16, ta, tb, 2);
      g.batch = 5;
      g.beta = beta;
      g.stride_a = 19 * 16 + 16 * 2 + 19 * 2;
      g.stride_b = 16 * 23 + 16 * 2 + 23 * 2;
      g.stride_c = 19 * g.ldc + 3;
      compare_all_types(g, integers);
      g.stride_b = 0;  // one B for all
      compare_all_types(g, integers);
      g.stride_a = 0;
      compare_all_types(g, integers);
    }
  });
}

// The heads of attention: the batch lies between the rows, (T, H, d) read as H matrices (T, d).
TEST(Gemm, BatchInterleavedInRows) {
  int64_t t = 40, heads = 3, d = 16;
  auto q = filled<float>(t * heads * d, integers, 1), k = filled<float>(t * heads * d, integers, 2);
  std::vector<float> scores(heads * t * t);
  Gemm g{.transpose_b = true,
         .m = t,
         .n = t,
         .k = d,
         .lda = heads * d,
         .ldb = heads * d,
         .ldc = t,
         .batch = heads,
         .stride_a = d,
         .stride_b = d,
         .stride_c = t * t};
  gemm_cpu(g, q.data(), k.data(), scores.data());
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < t; ++j) {
        float sum = 0;
        for (int64_t x = 0; x < d; ++x)
          sum += q[(i * heads + h) * d + x] * k[(j * heads + h) * d + x];
        ASSERT_EQ(scores[(h * t + i) * t + j], sum);
      }
}

TEST(Gemm, NoTermsLeaveBetaC) {
  std::vector<float> c = {1, 2, 3, 4, 5, 6};
  Gemm g{.m = 2, .n = 2, .k = 0, .lda = 2, .ldb = 2, .ldc = 3, .beta = 3};
  gemm_cpu(g, nullptr, nullptr, c.data());
  EXPECT_EQ(c, (std::vector<float>{3, 6, 3, 12, 15, 6}));
  g.beta = 0;
  c[0] = kNan;
  gemm_cpu(g, nullptr, nullptr, c.data());
  EXPECT_EQ(c, (std::vector<float>{0, 0, 3, 0, 0, 6}));
}

TEST(Gemm, AlphaZeroReadsNeitherAnorB) {
  std::vector<float> a(4, kNan), c = {1, 2, 3, 4};
  Gemm g{.m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .alpha = 0, .beta = 1};
  gemm_cpu(g, a.data(), a.data(), c.data());
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 4}));
}

TEST(Gemm, EmptyResultDoesNothing) {
  for (auto [m, n, batch] : {std::array{0, 4, 1}, {4, 0, 1}, {4, 4, 0}}) {
    Gemm g{.m = m, .n = n, .k = 3, .lda = 4, .ldb = 4, .ldc = 4, .batch = batch};
    gemm_cpu(g, nullptr, nullptr, nullptr);
  }
}

// A NaN or an infinity reaches its row of C and no other: padding of odd sizes must not leak.
TEST(Gemm, NonFiniteNumbersStayInTheirRow) {
  each_transpose([](bool ta, bool tb) {
    Gemm g = sized(13, 21, 6, ta, tb);
    auto a = filled<float>(13 * 6, integers, 1), b = filled<float>(6 * 21, integers, 2);
    std::vector<float> c(13 * 21);
    (ta ? a[2 * 13 + 12] : a[12 * 6 + 2]) = kNan;
    gemm_cpu(g, a.data(), b.data(), c.data());
    for (int64_t i = 0; i < 13; ++i)
      for (int64_t j = 0; j < 21; ++j) ASSERT_EQ(std::isnan(c[i * 21 + j]), i == 12);
  });
}

/// The bits of a product of reals over that many threads.
std::vector<float> product_on(int threads, Gemm g) {
  int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  auto a = filled<float>(g.m * g.k * g.batch, reals, 1),
       b = filled<float>(g.k * g.n * g.batch, reals, 2);
  auto c = filled<float>(g.m * g.n * g.batch, reals, 3);
  gemm_cpu(g, a.data(), b.data(), c.data());
  omp_set_num_threads(before);
  return c;
}

TEST(Gemm, TheNumberOfThreadsDoesNotChangeABit) {
  each_transpose([](bool ta, bool tb) {
    for (auto [m, n, k, batch] : {std::array{300, 70, 900, 1},
                                  {9, 500, 64, 1},
                                  {500, 9, 64, 1},
                                  {64, 64, 2000, 1},
                                  {40, 40, 40, 7},
                                  {3, 400, 300, 1}}) {
      Gemm g = sized(m, n, k, ta, tb);
      g.alpha = 0.7;
      g.beta = 0.3;
      g.batch = batch;
      g.stride_a = g.m * g.k;
      g.stride_b = g.k * g.n;
      g.stride_c = g.m * g.n;
      auto serial = product_on(1, g);
      for (int threads : {2, 3, 8}) ASSERT_TRUE(serial == product_on(threads, g)) << describe(g);
    }
  });
}

TEST(Gemm, RunsInsideAParallelRegion) {
  Gemm g = sized(90, 80, 70, false, true);
  auto want = product_on(1, g);
  std::vector<int> equal(4);
#pragma omp parallel for num_threads(4)
  for (int i = 0; i < 4; ++i) equal[i] = product_on(2, g) == want;
  EXPECT_EQ(equal, std::vector<int>(4, 1));
}

/// The text of the error that g throws.
std::string error_of(const Gemm& g) {
  float x[64] = {};
  try {
    gemm_cpu(g, x, x, x);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Gemm, ErrorsSayWhatWasExpected) {
  Gemm g{.m = 2, .n = 3, .k = 4, .lda = 4, .ldb = 3, .ldc = 3};
  Gemm narrow = g, overlap = g, types = g, integer = g, negative = g;
  narrow.transpose_b = true;
  EXPECT_NE(error_of(narrow).find("at least 4, 4, 3, got 4, 3, 3"), std::string::npos);
  overlap.batch = 2;
  EXPECT_NE(error_of(overlap).find("matrices of C overlap"), std::string::npos);
  types.type_c = DType::f64;
  EXPECT_NE(error_of(types).find("C must be f32, got f64"), std::string::npos);
  integer.type = integer.type_c = DType::i32;
  EXPECT_NE(error_of(integer).find("got i32"), std::string::npos);
  negative.m = -1;
  EXPECT_NE(error_of(negative).find("negative size in m -1"), std::string::npos);
}

}  // namespace
}  // namespace gradus
