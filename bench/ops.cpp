// Memory-bound ops at the shapes of a training step, in bf16: milliseconds, TB/s, and the fraction of the
// bandwidth of a copy, which is measured in the same run.
//
//   build/cuda/bench/ops --only norm,loss --json
//
// A time is the median of samples of some calls that follow each other, between two events of the
// device, which is kept busy until the host has asked for all of them. Inputs rotate over more memory
// than the caches hold. Bytes are the least that an op must move: inputs once, outputs once. Without a
// GPU there are 64 times fewer rows, on one core.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "autograd/apply.h"
#include "autograd/engine.h"
#include "autograd/node.h"
#include "core/cuda.h"
#include "core/time_mark.h"
#include "ops/ops.h"

using namespace gradus;

namespace {

using Call = std::function<void()>;

struct Options {
  std::vector<std::string> only;
  std::string device = cuda_device_count() > 0 ? "cuda" : "cpu";
  int samples = 15, repeat = 5;
  bool json = false;
};

/// Two moments on the device, and the milliseconds between them.
class Stopwatch {
 public:
  explicit Stopwatch(Device device) : device_(device) {}
  void start() { begun_.emplace(device_); }
  double stop() {
    const TimeMark done(device_);
    synchronize(device_);
    return done.since(*begun_);
  }

 private:
  Device device_;
  std::optional<TimeMark> begun_;
};

class Bench {
 public:
  Bench(const Options& options, Device d)
      : device(d), options_(options), watch_(d), large_(scaled(1 << 20) * 1024) {
    source_ = empty({large_}, DType::bf16, device);
    target_ = empty({large_}, DType::bf16, device);
    fill_(source_, 1);
    copy_tb_s_ = 4 * double(large_) / 1e9 /
                 row("copy", "read + write", 4 * double(large_), {[&] { copy(); }});
  }

  bool wants(const std::string& group) const {
    const auto& only = options_.only;
    return only.empty() || std::find(only.begin(), only.end(), group) != only.end();
  }
  int64_t scaled(int64_t rows) const { return device.is_cuda() ? rows : rows / 64; }
  Tensor random(const Shape& shape, double deviation = 1) {
    return normal(shape, generator_, 0, deviation, DType::bf16, device);
  }
  Tensor parameter(const Shape& shape) { return random(shape).requires_grad_(); }
  Tensor ids(int64_t n, int64_t limit, bool zipf) {
    Tensor u = uniform({n}, generator_, 0, 1, DType::f64, device);
    u = zipf ? exp(u * std::log(double(limit))) + -1 : u * double(limit);  // of rank k: p ~ 1/k
    return cast(cast(u, DType::i64), DType::i32);
  }

  /// Times the calls in turn and prints a row; returns milliseconds a call. `before` prepares a sample.
  double row(const std::string& op, const std::string& shape, double bytes,
             const std::vector<Call>& calls, const Call& before = {}) {
    std::vector<double> times;
    for (int sample = -1; sample < options_.samples; ++sample) {
      if (before) before();
      for (int i = 0; device.is_cuda() && i < 2; ++i) copy();
      watch_.start();
      for (int i = 0; i < options_.repeat; ++i) calls[size_t(i) % calls.size()]();
      double ms = watch_.stop() / options_.repeat;
      if (sample >= 0) times.push_back(ms);  // the first is a warm-up
    }
    std::sort(times.begin(), times.end());
    print(op, shape, bytes, times[times.size() / 2]);
    return times[times.size() / 2];
  }

  const Device device;

 private:
  void copy() {
    copy_bytes(target_.raw(), device, source_.raw(), device, size_t(bytes_of(source_)));
  }

  void print(const std::string& op, const std::string& shape, double bytes, double ms) const {
    const double tb_s = bytes / 1e9 / ms, of_copy = copy_tb_s_ > 0 ? tb_s / copy_tb_s_ : 1;
    if (options_.json) {
      std::cout << nlohmann::ordered_json{{"op", op},
                                          {"shape", shape},
                                          {"ms", ms},
                                          {"tb_s", tb_s},
                                          {"of_copy", of_copy}}
                << std::endl;
      return;
    }
    char line[160];
    std::snprintf(line, sizeof(line), "%-30s %-22s %9.4f ms %8.3f TB/s %6.3f of copy", op.c_str(),
                  shape.c_str(), ms, tb_s, of_copy);
    std::cout << line << std::endl;
  }

  Options options_;
  Stopwatch watch_;
  Generator generator_{5};
  int64_t large_;  // elements of a tensor that no cache holds
  Tensor source_, target_;
  double copy_tb_s_ = 0;
};

std::string by(int64_t rows, int64_t columns) {
  return std::to_string(rows) + "x" + std::to_string(columns);
}

/// f(set) without recording, for each of `sets` inputs; then the backward of each.
template <class Set, class F>
void forward_and_backward(Bench& b, const std::string& op, const std::string& shape,
                          double forward_bytes, double backward_bytes, std::vector<Set>& sets,
                          F f) {
  std::vector<Call> forward, backward;
  std::vector<Tensors> seeds;
  for (Set& set : sets) {
    forward.push_back([&set, f] {
      NoGrad guard;
      f(set);
    });
    Tensors y = f(set), dy;
    for (const Tensor& t : y) dy.push_back(b.random(t.shape()));
    backward.push_back(
        [&set, y, dy] { run_backward(y, dy, set.leaves, false, {.retain_graph = true}); });
  }
  b.row(op + " forward", shape, forward_bytes, forward);
  b.row(op + " backward", shape, backward_bytes, backward);
}

struct Leaves {
  Tensors leaves;
  const Tensor& operator[](int i) const { return leaves[size_t(i)]; }
};

void norms(Bench& b) {
  for (auto [all_rows, C] :
       {std::pair{65536, 768}, {32768, 1024}, {16384, 2048}, {16384, 4096}, {8192, 8192}}) {
    const int64_t rows = b.scaled(all_rows);
    const double unit = double(rows * C * 2);
    const std::string shape = by(rows, C);
    std::vector<Leaves> sets;
    for (int i = 0; i < 4; ++i)
      sets.push_back({{b.parameter({rows, C}), b.parameter({C}), b.parameter({C}),
                       b.parameter({rows, C}), b.parameter({C})}});
    std::vector<Leaves> plain, rms;
    for (const Leaves& s : sets)
      plain.push_back({{s[0], s[1], s[2]}}), rms.push_back({{s[0], s[1]}});
    forward_and_backward(b, "layer_norm", shape, 2 * unit, 3 * unit, plain,
                         [](const Leaves& s) { return Tensors{layer_norm(s[0], s[1], s[2])}; });
    forward_and_backward(b, "rms_norm", shape, 2 * unit, 3 * unit, rms,
                         [](const Leaves& s) { return Tensors{rms_norm(s[0], s[1])}; });
    forward_and_backward(b, "add_layer_norm", shape, 4 * unit, 4 * unit, sets, [](const Leaves& s) {
      AddNorm a = add_layer_norm(s[0], s[3], s[4], s[1], s[2]);
      return Tensors{a.sum, a.normal};
    });
    if (C > 1024) continue;
    forward_and_backward(
        b, "add_layer_norm, dropout", shape, 4 * unit, 5 * unit, sets, [](const Leaves& s) {
          AddNorm a =
              add_layer_norm(s[0], s[3], s[4], s[1], s[2], {.dropout = 0.1, .mask = {3, 1}});
          return Tensors{a.sum, a.normal};
        });
  }
}

void softmaxes(Bench& b) {
  for (auto [all_rows, C] : {std::pair{65536, 1024}, {16384, 4096}, {4096, 32768}}) {
    const int64_t rows = b.scaled(all_rows);
    const double unit = double(rows * C * 2);
    std::vector<Leaves> sets;
    for (int i = 0; i < 4; ++i) sets.push_back({{b.parameter({rows, C})}});
    forward_and_backward(b, "softmax", by(rows, C), 2 * unit, 3 * unit, sets,
                         [](const Leaves& s) { return Tensors{softmax(s[0])}; });
  }
}

/// What a model hands to its loss: logits that nobody else has, and whose gradient is asked for.
struct Logits {
  static constexpr auto name = "logits";
  Tensor made;
  Tensor forward(const Tensor&) { return std::move(made); }
  Tensor backward(const Tensor&) { return {}; }
};

/// The gradient is written over the logits, so each sample begins with fresh ones.
void losses(Bench& b) {
  for (auto [all_rows, V] : {std::pair{16384, 50304}, {8192, 128256}, {16384, 50257}}) {
    const int64_t rows = b.scaled(all_rows);
    Tensor source = b.random({rows, V}, 2), targets = b.ids(rows, V, false);
    Tensor hidden = b.random({1}, 1).requires_grad_();
    std::vector<Tensor> logits(5);
    auto refill = [&] {
      for (Tensor& z : logits) copy_(z = empty_like(source), source);
    };
    std::vector<Call> calls;
    for (Tensor& z : logits)
      calls.push_back(
          [&] { cross_entropy(apply(Logits{std::move(z)}, hidden), targets).backward(); });
    b.row("cross_entropy both", by(rows, V), 2 * double(bytes_of(source)), calls, refill);
  }
}

void pointwise(Bench& b) {
  const int64_t rows = b.scaled(65536), H = 1536;
  const double unit = double(rows * H * 2);
  std::vector<Leaves> sets;
  for (int i = 0; i < 3; ++i) sets.push_back({{b.parameter({rows, 2 * H})}});
  const std::string shape = by(rows, 2 * H);
  forward_and_backward(b, "gelu", shape, 4 * unit, 6 * unit, sets,
                       [](const Leaves& s) { return Tensors{gelu(s[0], GeluKind::tanh)}; });
  forward_and_backward(b, "swiglu", shape, 3 * unit, 5 * unit, sets,
                       [](const Leaves& s) { return Tensors{swiglu(s[0])}; });
  forward_and_backward(b, "dropout", shape, 4 * unit, 4 * unit, sets, [](const Leaves& s) {
    Generator g(1);
    return Tensors{dropout(s[0], 0.1, g)};
  });
}

/// Backward adds rows to an f32 gradient: each touched row is read and written.
void lookups(Bench& b) {
  const int64_t tokens = b.scaled(65536), V = 50304, C = 768;
  for (bool zipf : {false, true}) {
    Tensor table = b.parameter({V, C});
    table.set_main_grad(zeros({V, C}, DType::f32, b.device));
    std::vector<Call> forward, backward;
    double touched = 0;
    for (int i = 0; i < 4; ++i) {
      Tensor ids = b.ids(tokens, zipf ? 50257 : V, zipf);
      std::vector<double> seen = ids.to_vector();
      std::sort(seen.begin(), seen.end());
      touched += double(std::unique(seen.begin(), seen.end()) - seen.begin()) / 4;
      Tensor y = embedding(table, ids), dy = b.random(y.shape());
      forward.push_back([table, ids] {
        NoGrad guard;
        embedding(table, ids);
      });
      backward.push_back([y, dy] { y.backward(dy, {.retain_graph = true}); });
    }
    const std::string shape = by(tokens, C) + (zipf ? " zipf" : " uniform");
    b.row("embedding forward", shape, 4 * double(tokens * C), forward);
    b.row("embedding backward", shape, double(C) * (2 * double(tokens) + 8 * touched), backward);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options o;
  CLI::App app{"times memory-bound ops beside a copy"};
  app.add_option("--only", o.only, "groups: norm, softmax, loss, pointwise, lookup")
      ->delimiter(',');
  app.add_option("--device", o.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--samples", o.samples)->check(CLI::PositiveNumber);
  app.add_option("--repeat", o.repeat, "calls in a sample")->check(CLI::PositiveNumber);
  app.add_flag("--json", o.json, "a JSON line for each row");
  CLI11_PARSE(app, argc, argv);
  omp_set_num_threads(1);
  Bench b(o, o.device == "cuda" ? kCuda : kCpu);
  const std::pair<const char*, void (*)(Bench&)> groups[] = {{"norm", norms},
                                                             {"softmax", softmaxes},
                                                             {"loss", losses},
                                                             {"pointwise", pointwise},
                                                             {"lookup", lookups}};
  for (auto [name, run] : groups)
    if (b.wants(name)) run(b);
} catch (const std::exception& e) {
  std::cerr << "ops: " << e.what() << "\n";
  return 1;
}
