// The parity matrix: a step on many ranks is the step of one. GPTs and a BERT in f64, on every combination
// of data ranks, tensor ranks, sequence parallelism, ZeRO-1 and micro-batches within 8 ranks, with dropout
// and a vocabulary, masks and counts that divide by nothing.
#include "tests/parallel/parity.h"

#include <gtest/gtest.h>

#include <set>

#include "autograd/node.h"
#include "tests/parallel/each_world.h"
#include "tests/parallel/late_parameters.h"

namespace gradus::parallel {
namespace {

using namespace parity;

/// On threads; on processes where mpirun started as many. Whether it ran.
bool on_ranks(const Plan& plan, const Body& body) {
  const int ranks = plan.dp * plan.tp;
  const RankOptions watchdog{.timeout = 20};
  if (!launched_by_mpi()) {
    run_ranks(ranks, body, watchdog);
    return true;
  }
  const Communicator world = mpi_world({watchdog});
  if (world.size() == ranks) body(world);
  return world.size() == ranks;
}

// ---- what is compared

/// R10, A5: each rank starts from its slice of what one would hold, bit for bit, and 0 in its padding.
void expect_slices(nn::Module& model, const std::map<std::string, Values>& whole) {
  const auto parameters = model.named_parameters();
  ASSERT_EQ(parameters.size(), whole.size());
  for (const auto& [name, p] : parameters) {
    const nn::ShardMap map(p.shape(), p.shard);
    const Values mine = p.to_vector();
    for (int64_t i = 0; i < p.numel(); ++i)
      ASSERT_EQ(mine[size_t(i)], i < p.real_numel() ? whole.at(name)[size_t(map(i))] : 0)
          << name << " " << i;
  }
}

/// Every element of a parameter's shard is the part of one data rank; or of all, without slices.
void expect_all_have_an_owner(const optim::FlatBuffer& flat, const Communicator& dp) {
  std::vector<int64_t> sizes;
  for (const optim::Slot& slot : flat.slots()) {
    const optim::OwnPart own = flat.layout().own_part(slot);
    sizes.push_back(std::max<int64_t>(own.end - own.begin, 0));
  }
  const std::vector<int64_t> all = dp.all_gather_values(sizes);
  const int copies = flat.layout().options().slices > 1 ? 1 : dp.size();
  for (size_t s = 0; s < sizes.size(); ++s) {
    int64_t sum = 0;
    for (size_t i = s; i < all.size(); i += sizes.size()) sum += all[i];
    EXPECT_EQ(sum, copies * flat.slots()[s].parameter.real_numel()) << flat.slots()[s].name();
  }
}

void expect_gradients(const Training& run, const Reference& one, double tolerance) {
  expect_all_have_an_owner(run.flat(), run.groups().dp);
  for (const optim::Slot& slot : run.flat().slots()) {
    const optim::OwnPart own = run.flat().layout().own_part(slot);
    const Errors e = errors_of(slot.parameter, run.gradient(slot), own,
                               one.gradients.at(slot.name()), one.mean_size);
    EXPECT_LE(e.tensor, tolerance) << "gradient of " << slot.name();
    EXPECT_LE(e.row, tolerance) << "a row of the gradient of " << slot.name();
  }
}

void expect_found(const StepFound& many, const StepFound& one, int64_t noise) {
  const auto close = [](double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); };
  EXPECT_PRED2(close, many.loss, one.loss);
  EXPECT_PRED2(close, many.norm, one.norm);
  EXPECT_EQ(many.targets, one.targets);
  EXPECT_LE(std::abs(many.zeros - one.zeros), noise) << many.zeros << " and " << one.zeros;
}

void expect_parameters(nn::Module& model, const std::map<std::string, Values>& whole) {
  for (const auto& [name, p] : model.named_parameters()) {
    const nn::ShardMap map(p.shape(), p.shard);
    const Values mine = p.to_vector();
    for (int64_t i = 0; i < p.numel(); ++i)
      ASSERT_NEAR(mine[size_t(i)], i < p.real_numel() ? whole.at(name)[size_t(map(i))] : 0, 1e-10)
          << name << " " << i;
  }
}

// ---- the matrix

class ParityMatrix : public testing::TestWithParam<Case> {};

// In f64 sums of some hundred terms in another order differ by 1e-15, through two layers by a few
// times that: 1e-12 leaves a factor of a hundred, and any bug counts 1e-3. Adam divides a gradient by its
// size, which makes a little noise larger: 1e-10 after three steps, of parameters of size 1. With ZeRO-1 whatever
// part of the models reads a parameter has to wait for it.
TEST_P(ParityMatrix, A1_A3_P1_P4_P6_P7_P8_P9_P11_T4_Steps) {
  const Case& c = GetParam();
  const Reference& one = reference_of(c);
  const bool has_targets = c.targets != Targets::nowhere;
  ASSERT_EQ(one.steps[0].norm > kMaxNorm, has_targets);
  const bool ran = on_ranks(c.plan, [&](Communicator world) {
    SCOPED_TRACE("rank " + std::to_string(world.rank()));
    Training run(world, c);
    expect_slices(run.model(), one.start);
    for (int k = 0; k < kSteps; ++k) {
      SCOPED_TRACE("step " + std::to_string(k));
      expect_found(run.step(), one.steps[k], has_targets ? c.family.noise() : 0);
      check_same_parameters(run.flat(), run.groups());
      if (c.plan.zero) make_late(run.flat());
      if (k == 0) expect_gradients(run, one, 1e-12);
    }
    expect_parameters(run.model(), one.parameters);
  });
  if (!ran) GTEST_SKIP() << "mpirun started another number of processes";
}

constexpr Family kFamilies[] = {
    {"gpt2_tied"}, {"gpt2_untied"}, {"llama_tied"}, {"llama_untied"}, {"bert"}};

std::vector<Plan> plans() {
  std::vector<Plan> all;
  for (int tp : {1, 2, 4})
    for (int dp : {1, 2, 4})
      for (bool sequence : {false, true})
        for (bool zero : {false, true})
          for (int m : {1, 2, 4})
            if (tp * dp <= 8 && (tp > 1 || !sequence) && (dp > 1 || !zero))
              all.push_back({dp, tp, sequence, zero, m, m != 4, m == 2});
  return all;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Family& family : kFamilies)
    for (const Plan& plan : plans()) {
      all.push_back({family, plan});
      if (plan.dp != 2 || plan.micro_batches != 2) continue;
      for (Targets t : {Targets::one_on_rank_1, Targets::none_on_rank_1, Targets::nowhere})
        all.push_back({family, plan, t});
    }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, ParityMatrix, testing::ValuesIn(cases()),
                         [](const auto& info) { return name_of(info.param); });

// ---- random numbers

/// A GPT that shows its masks: with these values each op before the last norm is exact. Inputs are 1, a head
/// finds how many keys it kept out of those that it sees, the MLP adds 3.
void show_masks(nn::Module& gpt) {
  for (const auto& [name, p] : gpt.named_parameters()) {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    double value = 0;
    if (has("positions") || has("norm") || has("qkv.bias")) value = 1;
    if (has("down.bias")) value = 3;
    const nn::ShardMap map(p.shape(), p.shard);
    for (int64_t i = 0; i < p.numel(); ++i) {
      const bool diagonal = has("attention.out.weight") && map(i) / 16 == map(i) % 16;
      p.detach().set(i, diagonal ? 1 : value);
    }
  }
}

constexpr GptConfig kMasks{.layers = 2,
                           .width = 16,
                           .heads = 4,
                           .kv_heads = 2,
                           .vocab = kVocab,
                           .max_length = 8,
                           .dropout = 0.5,
                           .norm = NormKind::rms};

/// What masks leave of samples [first, first + count), as rows of all of their tokens.
Values masked_rows(const TensorParallel& tp, const Samples& s) {
  Gpt gpt(kMasks, tp);
  gpt.cast(DType::f64);
  show_masks(gpt);
  NoGrad guard;
  Generator dropout(77);
  const Tensor h = reshape(gpt.hidden(s.ids(), {&dropout, s.first}), {-1, 16});
  return (tp.splits_tokens() ? tp.group.all_gather(h) : h).to_vector();
}

// A5: the masks of tensor ranks and of micro-batches are pieces of those of one rank, exactly: equal bits.
TEST(ParityOfMasks, A5_AreThoseOfOneRank) {
  const Values whole = masked_rows({}, {});
  const Values sample(whole.begin(), whole.begin() + 8 * 16);
  EXPECT_GT(std::set<double>(sample.begin(), sample.end()).size(), 30u);
  EXPECT_NE(sample, Values(whole.begin() + 8 * 16, whole.begin() + 16 * 16));
  for (int tp : {1, 2, 4})
    for (bool sequence : {false, true})
      run_ranks(tp, [&](Communicator world) {
        for (int64_t count : {4, 8, 16})
          for (int64_t first = 0; first < kSamples; first += count) {
            const auto begin = whole.begin() + first * 8 * 16;
            EXPECT_EQ(masked_rows({world, sequence}, {.first = first, .count = count}),
                      Values(begin, begin + count * 8 * 16))
                << "tp " << tp << ", sp " << sequence << ", samples from " << first;
          }
      });
}

/// What all tensor ranks should have the same of, dropout on.
Values replicated(nn::Module& model, const Samples& s) {
  NoGrad guard;
  Generator dropout(77);
  if (auto* gpt = dynamic_cast<Gpt*>(&model)) return gpt->hidden(s.ids(), &dropout).to_vector();
  const BertInputs inputs{s.ids(), zeros({s.count, s.length}, DType::i32), {}};
  return dynamic_cast<Bert&>(model)(inputs, &dropout).to_vector();
}

TEST(ParityOfMasks, A5_ReplicatedActivationsAndLossesHaveTheSameBitsOnAllRanks) {
  for (const Family& family : kFamilies)
    for (int tp : {2, 4})
      run_ranks(tp, [&](Communicator world) {
        for (bool sequence : {false, true}) {
          const Model model = family.make({world, sequence});
          start(*model.module, family.deviation, DType::f64, DType::f64, kCpu);
          Generator dropout(77);
          const Samples s{.count = 4};
          Values values{model.share(s, counts_of(s), &dropout).item()};
          if (!sequence)
            for (double activation : replicated(*model.module, s)) values.push_back(activation);
          const std::string mine(reinterpret_cast<const char*>(values.data()), values.size() * 8);
          for (const std::string& theirs : world.all_gather_text(mine))
            EXPECT_TRUE(mine == theirs) << family.name << ", tp " << tp << ", sp " << sequence;
        }
      });
}

/// Parameters of rank 0 after three steps.
Values after_steps(const Case& c) {
  Values all;
  run_ranks(c.plan.dp * c.plan.tp, [&](Communicator world) {
    Training run(world, c);
    for (int k = 0; k < kSteps; ++k) run.step();
    if (world.rank() == 0) all = run.flat().parameters().to_vector();
  });
  return all;
}

// A5: two runs have equal bits, and so have those that compute blocks twice or send while backward runs.
TEST(ParityOfMasks, A5_RunsHaveEqualBitsAlsoWithRecomputationAndOverlap) {
  for (const Family& family : kFamilies) {
    const Values once = after_steps({family, {2, 2, true, true, 2, true, false}});
    EXPECT_EQ(after_steps({family, {2, 2, true, true, 2, true, false}}), once) << family.name;
    EXPECT_EQ(after_steps({family, {2, 2, true, true, 2, false, true}}), once) << family.name;
  }
}

}  // namespace
}  // namespace gradus::parallel
