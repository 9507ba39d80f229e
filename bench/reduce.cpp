// Reductions and lookups beside the speed at which memory can be read: bytes of the input per second.
// The array of 16 MB lies outside the caches that a core has of its own.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <cmath>

#include "autograd/node.h"
#include "ops/ops.h"

namespace gradus {
namespace {

constexpr int64_t kRows = 1 << 12, kColumns = 1 << 10;

/// The reference: the sum of all words, in a loop that the compiler vectorises.
void ReadByHand(benchmark::State& state) {
  Tensor x = ones({kRows, kColumns});
  auto* words = static_cast<const uint64_t*>(x.raw());
  for (auto _ : state) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < kRows * kColumns / 2; ++i) sum += words[i];
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * bytes_of(x));
}
BENCHMARK(ReadByHand);

/// `reduction` of a (kRows, kColumns) tensor over all dims, the last, or the first.
template <class Reduction>
void reduce_with(benchmark::State& state, DType dtype, Reduction reduction) {
  omp_set_num_threads(1);
  NoGrad guard;
  Tensor x = full({kRows, kColumns}, 1, dtype);
  for (auto _ : state) benchmark::DoNotOptimize(reduction(x));
  state.SetBytesProcessed(state.iterations() * bytes_of(x));
}

#define GRADUS_BENCH_REDUCTION(name, expression)                 \
  BENCHMARK_CAPTURE(reduce_with, name##_f32, DType::f32,         \
                    [](const Tensor& x) { return expression; }); \
  BENCHMARK_CAPTURE(reduce_with, name##_bf16, DType::bf16,       \
                    [](const Tensor& x) { return expression; })

GRADUS_BENCH_REDUCTION(sum, sum(x));
GRADUS_BENCH_REDUCTION(sum_of_rows, sum(x, {1}));
GRADUS_BENCH_REDUCTION(sum_of_columns, sum(x, {0}));
GRADUS_BENCH_REDUCTION(sum_of_short_rows, sum(reshape(x, {-1, 8}), {1}));
GRADUS_BENCH_REDUCTION(max_of_rows, max(x, {1}));
GRADUS_BENCH_REDUCTION(argmax_of_rows, argmax(x, 1));
GRADUS_BENCH_REDUCTION(var_of_rows, var(x, {1}));

constexpr int64_t kVocabulary = 50304, kWidth = 768, kTokens = 4096;

/// Ids as text has them: the word of rank r has a share of about 1/r.
Tensor text_like_ids() {
  std::vector<double> ids;
  for (int64_t t = 0; t < kTokens; ++t) {
    double u = Philox{1, 0}.uniform<double>(uint64_t(t));
    ids.push_back(std::floor(std::pow(double(kVocabulary), u)) - 1);
  }
  return tensor(ids, {kTokens}, DType::i64);
}

void Embedding(benchmark::State& state) {
  omp_set_num_threads(1);
  NoGrad guard;
  Tensor table = ones({kVocabulary, kWidth}), ids = text_like_ids();
  for (auto _ : state) benchmark::DoNotOptimize(embedding(table, ids));
  state.SetBytesProcessed(state.iterations() * 2 * kTokens * kWidth * 4);
}
BENCHMARK(Embedding);

/// Added to a main gradient that already holds one: only rows that the ids name are touched.
void EmbeddingBackward(benchmark::State& state) {
  omp_set_num_threads(1);
  Tensor table = ones({kVocabulary, kWidth}).requires_grad_(), ids = text_like_ids();
  table.set_main_grad(zeros({kVocabulary, kWidth}));
  Tensor y = embedding(table, ids), dy = ones(y.shape());
  for (auto _ : state) y.backward(dy, {.retain_graph = true});
  state.SetBytesProcessed(state.iterations() * kTokens * kWidth * 4);
}
BENCHMARK(EmbeddingBackward);

}  // namespace
}  // namespace gradus

BENCHMARK_MAIN();
