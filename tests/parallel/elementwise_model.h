#pragma once
// A model whose gradients are known whatever a rank has of it. It is a list of parameters, cut as those of
// a transformer under sequence parallelism are, with a loss in which each element stands for itself,
//
//   L = Σ_j Σ_i c_ji θ_i³ / 3         sample j, element i of a parameter,   dθ_i = Σ_j c_ji θ_i²
//
// A rank has its samples, its elements, and of a parameter with partial gradients its share of c.
#include <sstream>

#include "core/cuda.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "parallel/finalize.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel::elementwise {

using Values = std::vector<double>;

inline constexpr int kSamples = 24;  // of a step: over data ranks and micro-batches
inline constexpr double kShares[] = {0.25, 0.75};

inline TrainingGroups groups_of(const Communicator& world, int tp) {
  return training_groups(model_grid(world, {.tp = tp}));
}

struct Net final : nn::Module {
  nn::Parameter table, positions, up, down, norm, bias, pooler, unused, tiny;

  explicit Net(const Communicator& tp) {
    const int n = tp.size();
    const nn::Shard rows = nn::padded_shard(tp.rank(), n, (15 + n - 1) / n, 15);
    const nn::Shard columns{.dim = 1, .rank = tp.rank(), .ranks = n};
    const nn::Shard pair{.dim = 0, .rank = tp.rank(), .ranks = n, .pieces = 2};
    const nn::Shard partial{.partial_grad = n > 1};
    const nn::Initializer normal{nn::Initializer::Kind::normal, 0, 1};
    table = nn::Parameter({(15 + n - 1) / n, 6}, normal, rows);
    positions = nn::Parameter({9, 3}, normal, partial);
    up = nn::Parameter({20 / n, 5}, normal, pair);
    down = nn::Parameter({7, 10 / n}, normal, columns);
    norm = nn::Parameter({37}, normal, partial);
    bias = nn::Parameter({20 / n}, normal, pair);
    pooler = nn::Parameter({70}, normal);
    unused = nn::Parameter({5, 5}, normal);
    tiny = nn::Parameter({1}, normal);
  }
  void fields(nn::Fields& f) override {
    f("table", table)("positions", positions)("up", up)("down", down)("norm", norm);
    f("bias", bias)("pooler", pooler)("unused", unused)("tiny", tiny);
  }
};

/// c_ji; every seventh element has no gradient, so that zeros can be counted.
inline double coefficient(uint64_t name, int sample, int64_t element) {
  if (element % 7 == 3) return 0;
  const uint64_t word = mix(name ^ mix(uint64_t(element) * kSamples + uint64_t(sample)));
  return double(word >> 11) * 0x1p-53 - 0.25;
}

inline uint64_t number_of(const std::string& name) { return fnv1a(name.c_str()); }

/// The loss of samples [begin, end), as far as it is this rank's.
inline Tensor loss_of(Net& net, const Communicator& tp, int begin, int end) {
  Tensor loss;
  for (const auto& [name, p] : net.named_parameters()) {
    if (name == "unused") continue;
    const nn::ShardMap map(p.shape(), p.shard);
    const double share = p.shard.partial_grad ? kShares[tp.rank()] : 1;
    Values c(size_t(p.numel()));
    for (int j = begin; j < end; ++j)
      for (size_t i = 0; i < size_t(p.real_numel()); ++i)
        c[i] += share / 3 * coefficient(number_of(name), j, map(int64_t(i)));
    const Tensor x = cast(p, DType::f64);
    const Tensor part = sum(mul(mul(mul(x, x), x), tensor(c, p.shape(), DType::f64, p.device())));
    loss = loss ? loss + part : part;
  }
  return loss;
}

struct Case {
  int tp = 1, dp = 1;
  bool zero = false, overlap = true;
  int64_t bucket = int64_t(1) << 40;
  bool uneven = false;  // the last data rank has no sample, and the others have not equally many
  int micro_batches = 2;
  int gpus = 0;  // 0: on the CPU; 1: all ranks on the first GPU; as many as ranks: one each

  Device device(int rank) const {
    if (gpus == 0) return kCpu;
    return {DeviceType::cuda, int8_t(rank % gpus)};
  }
};
inline std::string text_of(const Case& c) {
  std::ostringstream text;
  text << "tp " << c.tp << ", dp " << c.dp << (c.zero ? ", ZeRO-1" : "") << ", buckets of "
       << c.bucket << (c.overlap ? ", overlap" : "") << (c.uneven ? ", uneven" : "") << ", "
       << c.micro_batches << " micro-batches, GPUs: " << c.gpus;
  return text.str();
}

/// On threads; on processes where mpirun started as many.
inline void on_ranks(const Case& c, const Body& body) {
  if (!launched_by_mpi()) return run_ranks(c.tp * c.dp, body);
  const Communicator world = mpi_world();
  if (world.size() == c.tp * c.dp) body(world);
}

inline std::vector<Case> cases() {
  std::vector<Case> list;
  for (auto [tp, dp] : {std::pair{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2}, {1, 4}})
    for (bool zero : {false, true})
      for (int64_t bucket : {int64_t(1), int64_t(150), int64_t(1) << 40})
        list.push_back({tp, dp, zero, bucket != 1, bucket});
  for (bool zero : {false, true}) {
    list.push_back({.dp = 3, .zero = zero, .bucket = 150, .uneven = true});
    for (bool overlap : {false, true})
      for (int m : {1, 4})
        list.push_back(
            {.dp = 3, .zero = zero, .overlap = overlap, .bucket = 150, .micro_batches = m});
    if (cuda_device_count() >= 1)
      list.push_back({.tp = 2, .dp = 2, .zero = zero, .bucket = 150, .gpus = 1});
    for (int tp : {1, 2})
      for (int dp : {1, 2})
        if (tp * dp > 1 && tp * dp <= cuda_device_count())
          list.push_back({.tp = tp, .dp = dp, .zero = zero, .bucket = 150, .gpus = tp * dp});
  }
  return list;
}

/// A model, its optimizer, and its steps.
struct Training {
  Case c;
  TrainingGroups groups;
  Net net;
  optim::Adam adam;
  optim::MixedPrecision precision;
  Finalizer finalizer;

  Training(const Communicator& world, const Case& c, DType dtype = DType::f64,
           std::optional<optim::GradScalerOptions> scaling = {})
      : c(c),
        groups(groups_of(world, c.tp)),
        net(groups.tp),
        adam(started(net, dtype, c.device(world.rank())), {.beta1 = 0.8, .weight_decay = 0.1},
             arena_options(groups, c.zero, c.bucket)),
        precision(adam, scaling),
        finalizer(adam, groups, c.overlap) {}

  static std::vector<optim::ParameterGroup> started(Net& net, DType dtype, Device device) {
    nn::initialize(net, 11);
    net.to(device);
    net.cast(dtype);
    return optim::default_groups(net);
  }

  optim::StepResult step(const optim::StepOptions& options = {}, double poison = 0) {
    adam.zero_grad();
    for (int m = 0; m < c.micro_batches; ++m) {
      const int begin = first_sample(m, groups.dp.rank());
      const int end = first_sample(m, groups.dp.rank() + 1);
      if (begin == end) continue;
      Tensor loss = loss_of(net, groups.tp, begin, end);
      if (poison != 0) loss = loss + sum(cast(net.bias, DType::f64)) * poison;
      if (m == c.micro_batches - 1) finalizer.expect_last_backward();
      const Tensor seed = precision.seed();
      loss.backward(seed ? cast(seed, DType::f64) : seed);
    }
    const double lr = 0.01;
    const optim::StepResult result = precision.request(
        [&](int64_t) {
          return optim::Rates{lr, 0.1};
        },
        options);
    finalizer.run(precision, options);
    return result;
  }

  /// Of this micro-batch, of the data rank: its samples end where those of the next begin.
  int first_sample(int m, int rank) const {
    const int all = kSamples / c.micro_batches, last = groups.dp.size() - 1;
    const int even = all * rank / groups.dp.size();
    return m * all + (!c.uneven ? even : rank >= last ? all : rank == 0 ? 0 : 1);
  }

  /// By name, the elements of this rank.
  std::map<std::string, Values> parameters() {
    std::map<std::string, Values> all;
    for (const auto& [name, p] : net.named_parameters()) all[name] = p.to_vector();
    return all;
  }
  /// The same of gradients, with the places (of the shard) that this rank has after a step.
  std::map<std::string, std::pair<optim::OwnPart, Values>> gradients() {
    std::map<std::string, std::pair<optim::OwnPart, Values>> all;
    const optim::FlatBuffer& flat = adam.flat();
    for (const optim::Slot& slot : flat.slots())
      all[slot.name()] = {flat.layout().own_part(slot),
                          flat.view(flat.gradients(), slot).to_vector()};
    return all;
  }
};

}  // namespace gradus::parallel::elementwise
