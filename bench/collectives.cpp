// Collectives, and what they cost the products that run beside them.
//
//   bench/collectives                                    2 rank threads, on 2 GPUs where they are
//   bench/collectives --ranks 4 --device cpu --most 4e6
//
// For n ranks, bus bandwidth is what each link has to carry: 2 (n−1)/n of the bytes in an all-reduce, (n−1)/n
// of all parts together in the others. Prints a table and one JSON line a row.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>

#include "autograd/node.h"
#include "bench/step_clock.h"
#include "ops/ops.h"
#include "parallel/pending.h"
#include "parallel/run_ranks.h"
#include "train/machine.h"

using namespace gradus;
using namespace gradus::parallel;
using nlohmann::ordered_json;

namespace {

struct Options {
  int ranks = 2, repeat = 10;
  std::string device;  // empty: GPUs if there are enough
  double least = 1 << 16, most = 0;
};

/// The median time of f(), in ms, of `repeat` after two to warm up; the ranks begin together.
double time_of(const Communicator& world, Device device, int repeat,
               const std::function<void()>& f) {
  for (int i = 0; i < 2; ++i) f();
  synchronize(device);
  world.barrier();
  bench::StepClock clock(device);
  clock.mark();
  for (int i = 0; i < repeat; ++i) {
    f();
    clock.mark();
  }
  std::vector<double> ms = clock.intervals();
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

struct Row {
  std::string op;
  double bytes, ms, traffic;  // traffic: bytes over each link
};

void print(const Row& row, int ranks) {
  const double rate = row.traffic / row.ms / 1e6;
  std::printf("%-28s %9.2f MB %9.3f ms %8.1f GB/s\n", row.op.c_str(), row.bytes / 1e6, row.ms,
              rate);
  std::cout << ordered_json{{"bench", "collectives"}, {"ranks", ranks}, {"op", row.op},
                            {"bytes", row.bytes},     {"ms", row.ms},   {"bus_gb_s", rate}}
                   .dump()
            << std::endl;
}

std::vector<Row> collectives(const Options& o, const Communicator& world, Device device) {
  std::vector<Row> rows;
  const double n = world.size(), share = (n - 1) / n;
  for (double bytes = o.least; bytes <= o.most; bytes *= 8) {
    const int64_t count = int64_t(bytes / 2 / n) * int64_t(n);
    const Tensor x = full({count}, 0, DType::bf16, device),
                 part = full({count / int64_t(n)}, 0, DType::bf16, device);
    const auto add = [&](const char* op, double traffic, const std::function<void()>& f) {
      rows.push_back({op, bytes, time_of(world, device, o.repeat, f), traffic * bytes});
    };
    add("all_reduce", 2 * share, [&] { world.all_reduce_into(x); });
    add("all_gather", share, [&] { world.all_gather_into(x, part); });
    add("reduce_scatter", share, [&] { world.reduce_scatter_into(part, x); });
    add("all_to_all", share, [&] { (void)world.all_to_all(x); });
  }
  return rows;
}

/// Products of a layer of Llama-1.1B, alone and beside a sum of as many bytes as its input has.
std::vector<Row> beside_products(const Options& o, const Communicator& world, Device device) {
  const NoGrad no_grad;
  const int64_t tokens = device.is_cuda() ? 16384 : 64, width = device.is_cuda() ? 2048 : 64;
  const DType dtype = device.is_cuda() ? DType::bf16 : DType::f32;
  const Tensor x = full({tokens, width}, 0.01, dtype, device),
               w = full({2 * width, width}, 0.01, dtype, device);
  const Tensor sum = full({tokens, width}, 0, dtype, device);
  const double bytes = double(bytes_of(sum)),
               traffic = 2 * (world.size() - 1.0) / world.size() * bytes;
  const auto products = [&] {
    for (int i = 0; i < 4; ++i) (void)linear(x, w, {});
  };
  const double alone = time_of(world, device, o.repeat, products);
  const double sums = time_of(world, device, o.repeat, [&] { world.all_reduce_into(sum); });
  const double both = time_of(world, device, o.repeat, [&] {
    Pending pending = start_aside({sum}, [&] { world.all_reduce_into(sum); });
    products();
    pending.join();
  });
  return {{"products", bytes, alone, 0},
          {"sum", bytes, sums, traffic},
          {"sum beside products", bytes, both, traffic}};
}

void run(Options o) {
  if (o.device.empty()) o.device = cuda_device_count() >= o.ranks ? "cuda" : "cpu";
  if (o.most == 0) o.most = o.device == "cuda" ? 512 << 20 : 4 << 20;
  run_ranks(o.ranks, [&](Communicator world) {
    const Device device = o.device == "cpu" ? kCpu : Device{DeviceType::cuda, int8_t(world.rank())};
    std::vector<Row> rows = collectives(o, world, device);
    for (const Row& row : beside_products(o, world, device)) rows.push_back(row);
    if (world.rank() == 0)
      for (const Row& row : rows) print(row, world.size());
  });
}

}  // namespace

int main(int argc, char** argv) try {
  Options o;
  CLI::App app{"times collectives between rank threads"};
  app.add_option("--ranks", o.ranks);
  app.add_option("--device", o.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--repeat", o.repeat);
  app.add_option("--least", o.least, "bytes");
  app.add_option("--most", o.most, "bytes");
  CLI11_PARSE(app, argc, argv);
  run(o);
} catch (const std::exception& e) {
  std::cerr << "collectives: " << e.what() << "\n";
  return 1;
}
