// What an op on a GPU costs the host: tensors of one element, so that the kernels take no longer than a
// launch, and a stream that is never waited for inside a measurement.
//
//   bench/dispatch [--ops 200] [--rounds 30]
//
// Prints one JSON line for each: the launch of an empty kernel, then what an op takes in all. `above` is
// what we add to the launches that it makes. On an H200 in a virtual machine: launch 4.1 µs, mul 4.8,
// recorded 4.8, with its backward 19.8 for 4 launches. PyTorch 2.11 from C++ on such a GPU: add 8.6.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "autograd/node.h"
#include "core/allocator.h"
#include "core/cuda.h"
#include "core/delay.h"
#include "ops/ops.h"

using namespace gradus;

namespace {

struct Options {
  int ops = 200, rounds = 30;  // fewer than the 1024 launches that a stream queues
};

double microseconds() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

/// Host time of f() by `ops`: the median of the rounds.
template <class F>
double per_op(const Options& o, F&& f) {
  std::vector<double> times;
  for (int round = -3; round < o.rounds; ++round) {
    synchronize(kCuda);
    const double start = microseconds();
    f();
    if (round >= 0) times.push_back((microseconds() - start) / o.ops);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void print(const char* what, double us, double launches, double bare) {
  std::cout << nlohmann::ordered_json{{"dispatch", what},
                                      {"us", us},
                                      {"launches", launches},
                                      {"above", us - launches * bare}}
                   .dump()
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) try {
  Options o;
  CLI::App app{"times the dispatch of ops on a GPU"};
  app.add_option("--ops", o.ops);
  app.add_option("--rounds", o.rounds);
  CLI11_PARSE(app, argc, argv);
  if (cuda_device_count() == 0) {
    std::cout << "bench/dispatch needs a GPU\n";
    return 0;
  }
  const Tensor x = ones({1}, DType::f32, kCuda);
  const Tensor w = ones({1}, DType::f32, kCuda).requires_grad_();
  const auto chain = [&](Tensor y) {
    for (int i = 0; i < o.ops; ++i) y = mul(y, w);
    return y;
  };
  const double bare = per_op(o, [&] {
    for (int i = 0; i < o.ops; ++i) delay(kCuda, 0);
  });
  print("empty kernel", bare, 1, bare);
  print("memory: taken and given back",
        per_op(o,
               [&] {
                 for (int i = 0; i < o.ops; ++i) deallocate(allocate(kCuda, 4096), 4096);
               }),
        0, bare);
  print("mul",
        per_op(o,
               [&] {
                 NoGrad guard;
                 chain(x);
               }),
        1, bare);
  print("mul, recorded", per_op(o, [&] { chain(x); }), 1, bare);
  // Backward of y w: dy w, dy y, and from the second on the sum in the gradient of w.
  print("mul, recorded, and its backward",
        per_op(o, [&] { chain(x.detach().requires_grad_()).backward(); }), 4, bare);
} catch (const std::exception& e) {
  std::cerr << "dispatch: " << e.what() << "\n";
  return 1;
}
