#include <omp.h>

#include <Eigen/Dense>
#include <algorithm>
#include <vector>

#include "ops/gemm.h"

namespace gradus {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using View = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;

/// op(X) as a dense matrix of Compute<T>: the 16-bit types are widened once, before the product.
template <class T>
Matrix<Compute<T>> widened(const T* x, int64_t rows, int64_t columns, int64_t ld) {
  Matrix<Compute<T>> wide(rows, columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) wide(i, j) = Compute<T>(x[i * ld + j]);
  return wide;
}

/// P = op(A) op(B). X and Y are stored as in the Gemm.
template <class X, class Y, class P>
void product(const Gemm& g, const X& a, const Y& b, P& p) {
  if (g.transpose_a && g.transpose_b)
    p.noalias() = a.transpose() * b.transpose();
  else if (g.transpose_a)
    p.noalias() = a.transpose() * b;
  else if (g.transpose_b)
    p.noalias() = a * b.transpose();
  else
    p.noalias() = a * b;
}

template <class T, class TC>
void multiply(const Gemm& g, const T* a, const T* b, TC* c) {
  using Sum = Compute<T>;
  int64_t rows_a = g.transpose_a ? g.k : g.m, rows_b = g.transpose_b ? g.n : g.k;
  int64_t columns_a = g.transpose_a ? g.m : g.k, columns_b = g.transpose_b ? g.k : g.n;
  Matrix<Sum> p = Matrix<Sum>::Zero(g.m, g.n);
  if (g.k > 0 && g.alpha != 0) {
    if constexpr (std::is_same_v<T, Sum>) {
      Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>> va(a, rows_a, columns_a,
                                                              Eigen::OuterStride<>(g.lda));
      Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>> vb(b, rows_b, columns_b,
                                                              Eigen::OuterStride<>(g.ldb));
      product(g, va, vb, p);
    } else {
      product(g, widened(a, rows_a, columns_a, g.lda), widened(b, rows_b, columns_b, g.ldb), p);
    }
  }
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      TC& out = c[i * g.ldc + j];
      Sum value = Sum(g.alpha) * p(i, j);
      out = TC(g.beta == 0 ? value : value + Sum(g.beta) * Sum(out));
    }
}

/// Threads share the rows of C in slices of a fixed height, so that their number changes no sum.
template <class T, class TC>
void multiply_batch(const Gemm& g, const void* a, const void* b, void* c) {
  constexpr int64_t kHeight = 256;
  int64_t slices = (g.m + kHeight - 1) / kHeight;
#pragma omp parallel for collapse(2) if (!omp_in_parallel())
  for (int64_t i = 0; i < g.batch; ++i)
    for (int64_t s = 0; s < slices; ++s) {
      Gemm slice = g;
      int64_t row = s * kHeight;
      slice.m = std::min(kHeight, g.m - row);
      multiply(slice, static_cast<const T*>(a) + i * g.stride_a + row * (g.transpose_a ? 1 : g.lda),
               static_cast<const T*>(b) + i * g.stride_b,
               static_cast<TC*>(c) + i * g.stride_c + row * g.ldc);
    }
}

void check_sizes(const Gemm& g) {
  int64_t width_a = g.transpose_a ? g.m : g.k, width_b = g.transpose_b ? g.k : g.n;
  check(g.m >= 0 && g.n >= 0 && g.k >= 0 && g.batch >= 0, "gemm: negative size in m ", g.m, ", n ",
        g.n, ", k ", g.k, ", batch ", g.batch);
  check(g.lda >= width_a && g.ldb >= width_b && g.ldc >= g.n,
        "gemm: rows overlap: lda, ldb, ldc must be at least ", width_a, ", ", width_b, ", ", g.n,
        ", got ", g.lda, ", ", g.ldb, ", ", g.ldc);
  check(g.batch <= 1 || g.m == 0 || g.stride_c >= (g.m - 1) * g.ldc + g.n,
        "gemm: matrices of C overlap: stride_c is ", g.stride_c);
  bool narrow = g.type == DType::bf16 || g.type == DType::f16;
  check(g.type_c == g.type || (narrow && g.type_c == DType::f32), "gemm: C must be ", g.type,
        narrow ? " or f32" : "", ", got ", g.type_c);
}

}  // namespace

void gemm_cpu(const Gemm& g, const void* a, const void* b, void* c) {
  check_sizes(g);
  if (g.m == 0 || g.n == 0) return;
  dispatch_floating("gemm", g.type, [&]<class T>() {
    if (g.type_c == g.type)
      multiply_batch<T, T>(g, a, b, c);
    else
      multiply_batch<T, float>(g, a, b, c);
  });
}

}  // namespace gradus
