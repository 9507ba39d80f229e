// The whole end of a step on many ranks against one rank. The model is a list of parameters, cut as those of
// a transformer under sequence parallelism are, with a loss in which each element stands for itself,
//
//   L = Σ_j Σ_i c_ji θ_i³ / 3         sample j, element i of a parameter,   dθ_i = Σ_j c_ji θ_i²
//
// so that what a rank should have is known whatever it holds: its samples, its elements, and of a
// parameter with partial gradients its share of the coefficients.
#include "parallel/finalize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/cuda.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

using Values = std::vector<double>;

constexpr int kSamples = 24;  // of a step: over data ranks and micro-batches
constexpr double kShares[] = {0.25, 0.75};

TrainingGroups groups_of(const Communicator& world, int tp) {
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
double coefficient(uint64_t name, int sample, int64_t element) {
  if (element % 7 == 3) return 0;
  const uint64_t word = mix(name ^ mix(uint64_t(element) * kSamples + uint64_t(sample)));
  return double(word >> 11) * 0x1p-53 - 0.25;
}

uint64_t number_of(const std::string& name) { return fnv1a(name.c_str()); }

/// The loss of samples [begin, end), as far as it is this rank's.
Tensor loss_of(Net& net, const Communicator& tp, int begin, int end) {
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
std::string text_of(const Case& c) {
  std::ostringstream text;
  text << "tp " << c.tp << ", dp " << c.dp << (c.zero ? ", ZeRO-1" : "") << ", buckets of "
       << c.bucket << (c.overlap ? ", overlap" : "") << (c.uneven ? ", uneven" : "") << ", "
       << c.micro_batches << " micro-batches, GPUs: " << c.gpus;
  return text.str();
}

/// On threads; on processes where mpirun started as many.
void on_ranks(const Case& c, const Body& body) {
  if (!launched_by_mpi()) return run_ranks(c.tp * c.dp, body);
  const Communicator world = mpi_world();
  if (world.size() == c.tp * c.dp) body(world);
}

std::vector<Case> cases() {
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

/// What one rank finds.
struct Serial {
  std::map<std::string, Values> parameters, gradients;
  Values norms, zeros;
};

Serial serial() {
  Serial s;
  Training run({}, {});
  for (int k = 0; k < 3; ++k) {
    const optim::StepResult result = run.step({.max_norm = 3, .count_zeros = true});
    s.norms.push_back(result.grad_norm());
    s.zeros.push_back(double(result.zeros()));
    if (k == 0)
      for (auto& [name, part] : run.gradients()) s.gradients[name] = part.second;
  }
  s.parameters = run.parameters();
  return s;
}

/// Elements [begin, end) of a shard against the whole.
void expect_near(const nn::Parameter& p, const Values& mine, const Values& whole, int64_t begin,
                 int64_t end, double tolerance, const std::string& what) {
  const nn::ShardMap map(p.shape(), p.shard);
  double largest = 0;
  for (double x : whole) largest = std::max(largest, std::abs(x));
  for (int64_t i = begin; i < end; ++i)
    ASSERT_NEAR(mine[size_t(i)], whole[size_t(map(i))], tolerance * largest) << what << " " << i;
}

// A1, A3, P1, P7, P8, P11, P15: gradients, norms and zeros of one rank, and its parameters after three steps, in which the
// norm clips. Sums of 24 terms in another order differ by some 1e-15.
TEST(Finalize, A1_A3_P1_P7_P8_P11_P15_ManyRanksDoWhatOneDoes) {
  const Serial expected = serial();
  ASSERT_GT(expected.norms[0], 3);
  for (const Case& c : cases()) {
    on_ranks(c, [&](Communicator world) {
      SCOPED_TRACE(text_of(c));
      Training run(world, c);
      for (int k = 0; k < 3; ++k) {
        const optim::StepResult result = run.step({.max_norm = 3, .count_zeros = true});
        EXPECT_NEAR(result.grad_norm() / expected.norms[size_t(k)], 1, 1e-12);
        EXPECT_EQ(double(result.zeros()), expected.zeros[size_t(k)]);
        check_same_parameters(run.adam.flat(), run.groups);
        if (k > 0) continue;
        const auto gradients = run.gradients();
        for (const auto& [name, p] : run.net.named_parameters()) {
          const auto& [own, values] = gradients.at(name);
          expect_near(p, values, expected.gradients.at(name), own.begin, own.end, 1e-12,
                      "gradient of " + name);
        }
      }
      const auto parameters = run.parameters();
      for (const auto& [name, p] : run.net.named_parameters())
        expect_near(p, parameters.at(name), expected.parameters.at(name), 0, p.real_numel(), 1e-10,
                    name);
    });
  }
}

// With groups of one, the end of a step is precision.run(), bit for bit.
TEST(Finalize, OneRankIsThePlainOptimizer) {
  for (DType dtype : {DType::f64, DType::bf16}) {
    Training with({}, {.zero = true, .bucket = 100}, dtype), without({}, {}, dtype);
    for (int k = 0; k < 3; ++k) {
      with.step({.max_norm = 3});
      without.adam.zero_grad();
      for (int m : {0, 1})
        loss_of(without.net, {}, m * kSamples / 2, (m + 1) * kSamples / 2).backward();
      without.precision.request([](int64_t) { return optim::Rates{0.01, 0.1}; }, {.max_norm = 3});
      without.precision.run({.max_norm = 3});
    }
    EXPECT_EQ(with.parameters(), without.parameters());
  }
}

// A11: sums in the order of ranks have the same bits in an all-reduce and in a reduce-scatter, so a step
// in slices is the plain one, masters and moments included.
TEST(Finalize, A11_SlicesAreThePlainStepBitForBit) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (int dp : {2, 3})
      run_ranks(dp, [&](Communicator world) {
        Training plain(world, {1, dp, false, true, 150}, dtype);
        Training zero(world, {1, dp, true, true, 150}, dtype);
        for (int k = 0; k < 3; ++k) plain.step(), zero.step();
        EXPECT_EQ(plain.parameters(), zero.parameters());
        std::map<std::string, Values> whole;
        for (const optim::NamedState& s : plain.adam.state()) whole[s.name] = s.value.to_vector();
        for (const optim::NamedState& s : zero.adam.state()) {
          const Values& all = whole.at(s.name);
          EXPECT_EQ(s.value.to_vector(), Values(all.begin() + s.begin, all.begin() + s.end))
              << s.name;
        }
        EXPECT_LT(zero.adam.flat().make_state().numel(), plain.adam.flat().make_state().numel());
      });
}

// P8, P14: one rank's overflow is everybody's, before anyone acts on it. Then all go on alike.
TEST(Finalize, P8_P14_AllRanksSkipWhereOneOverflows) {
  for (bool zero : {false, true})
    for (int tp : {1, 2})
      run_ranks(2 * tp, [&](Communicator world) {
        Training run(world, {tp, 2, zero, true, 150}, DType::f16,
                     optim::GradScalerOptions{.initial = 1024, .hysteresis = 1});
        run.step();
        const auto before = run.parameters();
        const optim::StepResult bad = run.step({}, world.rank() == 1 ? INFINITY : 0);
        EXPECT_FALSE(bad.applied());
        EXPECT_EQ(bad.non_finite(), "bias");
        EXPECT_EQ(run.parameters(), before);
        EXPECT_TRUE(run.step().applied());
        EXPECT_EQ(run.precision.state().scale, 512);
        EXPECT_EQ(run.adam.steps(), 2);
        check_same_parameters(run.adam.flat(), run.groups);
      });
}

TEST(Finalize, ParametersThatShouldBeTheSameAreCompared) {
  for (int tp : {1, 2})
    for (const char* changed : {"pooler", "table"}) {
      auto body = [&](Communicator world) {
        Training run(world, {tp, 4 / tp});
        check_same_parameters(run.adam.flat(), run.groups);
        if (world.rank() == 3)
          for (const auto& [name, p] : run.net.named_parameters())
            if (name == changed) p.detach().set(0, 77);
        check_same_parameters(run.adam.flat(), run.groups);
      };
      expect_error([&] { run_ranks(4, body); }, {"different values of ", changed, "3"});
    }
}

TEST(Finalize, AnOptimizerOfOtherGroupsIsAnError) {
  Net net{Communicator()};
  nn::initialize(net, 1);
  optim::Adam cut(optim::default_groups(net), {}, {.tensor_rank = 1, .tensor_ranks = 2});
  EXPECT_THROW(Finalizer(cut, {}), Error);
  optim::Adam sliced(optim::default_groups(net), {}, {.slices = 2});
  EXPECT_THROW(Finalizer(sliced, {}), Error);
}

}  // namespace
}  // namespace gradus::parallel
