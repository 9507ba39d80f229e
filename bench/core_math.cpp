// The functions of core/math.h and the generator, over a million floats, beside a copy (what memory
// allows) and the standard library's functions (what a call for each element costs).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "core/math.h"
#include "core/random.h"

namespace gradus {
namespace {

struct Copy {
  float operator()(float x) const { return x; }
};
struct StdExp {
  float operator()(float x) const { return std::exp(x); }
};
struct StdErf {
  float operator()(float x) const { return std::erf(x); }
};

// Named functors that know no type, as in the ops.
#define GRADUS_FUNCTOR(Name, function) \
  struct Name {                        \
    template <class T>                 \
    T operator()(T x) const {          \
      return math::function(x);        \
    }                                  \
  }
GRADUS_FUNCTOR(Exp, exp);
GRADUS_FUNCTOR(Log, log);
GRADUS_FUNCTOR(Tanh, tanh);
GRADUS_FUNCTOR(Sigmoid, sigmoid);
GRADUS_FUNCTOR(Erf, erf);
GRADUS_FUNCTOR(Rsqrt, rsqrt);

constexpr int64_t kSize = 1 << 20;

void count(benchmark::State& state) { state.SetItemsProcessed(state.iterations() * kSize); }

template <class F>
void map(benchmark::State& state) {
  std::vector<float> x(kSize), y(kSize);
  fill_uniform(Philox{1, 0}, 0, x.data(), kSize);
  for (float& v : x) v = 6 * v + 0x1p-20f;
  for (auto _ : state) {
    std::transform(x.begin(), x.end(), y.begin(), F{});
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  count(state);
}
BENCHMARK(map<Copy>);
BENCHMARK(map<Exp>);
BENCHMARK(map<StdExp>);
BENCHMARK(map<Log>);
BENCHMARK(map<Tanh>);
BENCHMARK(map<Sigmoid>);
BENCHMARK(map<Erf>);
BENCHMARK(map<StdErf>);
BENCHMARK(map<Rsqrt>);

template <class T, void (*fill)(const Philox&, uint64_t, T*, int64_t)>
void draw(benchmark::State& state) {
  std::vector<T> y(kSize);
  for (auto _ : state) {
    fill(Philox{1, 0}, 0, y.data(), kSize);
    benchmark::ClobberMemory();
  }
  count(state);
}
void words(benchmark::State& state) { draw<uint32_t, fill_words>(state); }
void uniform(benchmark::State& state) { draw<float, fill_uniform>(state); }
void normal(benchmark::State& state) { draw<float, fill_normal>(state); }
BENCHMARK(words);
BENCHMARK(uniform);
BENCHMARK(normal);

}  // namespace
}  // namespace gradus

BENCHMARK_MAIN();
