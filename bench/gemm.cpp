// The matrix products of a small GPT on the CPU, beside Eigen's, alternating: best GFLOP/s of each.
//
// Shapes are named for what they compute: 2048 tokens of C channels through a Linear (y = x Wᵀ and its
// two gradients), attention over batch · heads matrices, one token at a time, odd sizes. Inside a batch
// both compute whole matrices on each thread.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "ops/gemm.h"

namespace gradus {
namespace {

struct Case {
  std::string name;
  bool transpose_a, transpose_b;
  int64_t m, n, k, batch = 1;
  double beta = 0;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const int64_t tokens = 2048, vocabulary = 256;
  for (int64_t c : {128, 256})
    for (auto [in, out] : {std::pair{c, 3 * c}, {c, c}, {c, 4 * c}, {4 * c, c}, {c, vocabulary}}) {
      const std::string size = std::to_string(in) + "→" + std::to_string(out) + " ";
      all.push_back({size + "y", false, true, tokens, out, in});
      all.push_back({size + "dx", false, false, tokens, in, out});
      all.push_back({size + "dW", true, false, out, in, tokens, 1, 1});
    }
  for (auto [matrices, t, d] : {std::array{64, 128, 32}, {32, 256, 64}}) {
    const std::string size = "attention " + std::to_string(t) + "×" + std::to_string(d) + " ";
    all.push_back({size + "QKᵀ", false, true, t, t, d, matrices});
    all.push_back({size + "PV", false, false, t, d, t, matrices});
    all.push_back({size + "PᵀdO", true, false, t, d, t, matrices});
  }
  all.push_back({"1 token 256→1024", false, true, 1, 1024, 256});
  all.push_back({"8 tokens 256→1024", false, true, 8, 1024, 256});
  all.push_back({"333×333×333", false, false, 333, 333, 333});
  all.push_back({"1024×1024×1024", false, false, 1024, 1024, 1024});
  return all;
}

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
void eigen(const Gemm& g, const T* a, const T* b, T* c) {
  using Input = Eigen::Map<const Matrix<T>>;
  Input A(a, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k);
  Input B(b, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n);
  Eigen::Map<Matrix<T>> C(c, g.m, g.n);
  auto multiply = [&](const auto& x, const auto& y) {
    g.beta == 0 ? void(C.noalias() = x * y) : void(C.noalias() += x * y);
  };
  if (g.transpose_a)
    multiply(A.transpose(), B);
  else if (g.transpose_b)
    multiply(A, B.transpose());
  else
    multiply(A, B);
}

template <class T>
void eigen_batch(const Gemm& g, const T* a, const T* b, T* c) {
#pragma omp parallel for if (g.batch > 1)
  for (int64_t i = 0; i < g.batch; ++i)
    eigen(g, a + i * g.stride_a, b + i * g.stride_b, c + i * g.stride_c);
}

template <class F>
double seconds(F&& f) {
  auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class T>
void run(benchmark::State& state, const Case& c, int threads) {
  omp_set_num_threads(threads);
  Gemm g{.transpose_a = c.transpose_a, .transpose_b = c.transpose_b, .m = c.m, .n = c.n, .k = c.k};
  g.lda = c.transpose_a ? c.m : c.k;
  g.ldb = c.transpose_b ? c.k : c.n;
  g.ldc = c.n;
  g.batch = c.batch;
  g.stride_a = c.m * c.k, g.stride_b = c.k * c.n, g.stride_c = c.m * c.n;
  g.beta = c.beta;
  g.type = g.type_c = dtype_of<T>;
  std::vector<T> a(g.batch * g.stride_a), b(g.batch * g.stride_b), y(g.batch * g.stride_c);
  for (size_t i = 0; i < a.size(); ++i) a[i] = T(double(i % 13) - 6);
  for (size_t i = 0; i < b.size(); ++i) b[i] = T(double(i % 11) - 5);

  double ours = 1e9, eigens = 1e9;
  for (auto _ : state) {
    double time = seconds([&] { gemm_cpu(g, a.data(), b.data(), y.data()); });
    ours = std::min(ours, time);
    eigens = std::min(eigens, seconds([&] { eigen_batch(g, a.data(), b.data(), y.data()); }));
    state.SetIterationTime(time);
    benchmark::ClobberMemory();
  }
  const double gflop = 2e-9 * double(c.m * c.n * c.k * c.batch);
  state.counters["GFLOP/s"] = gflop / ours;
  state.counters["Eigen"] = gflop / eigens;
  state.counters["ratio"] = eigens / ours;
}

template <class T>
void add(const std::string& type, const Case& c, int threads) {
  const std::string name = type + ", " + std::to_string(threads) + " threads, " + c.name;
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& s) { run<T>(s, c, threads); })
      ->UseManualTime()
      ->MinTime(0.05);
}

const bool added = [] {
  const int most = omp_get_max_threads();
  for (const Case& c : cases()) {
    add<float>("f32", c, 1);
    if (most > 1) add<float>("f32", c, most);
  }
  for (const Case& c : cases())
    if (c.name.starts_with("256→1024")) add<double>("f64", c, most);
  return true;
}();

}  // namespace
}  // namespace gradus

BENCHMARK_MAIN();
