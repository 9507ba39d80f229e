#pragma once
// Training steps of one model on many ranks, and of the same on one: what the parity matrix compares.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <sstream>

#include "optim/adam.h"
#include "parallel/finalize.h"
#include "sched/cosine.h"
#include "sched/warmup.h"
#include "tests/parallel/parity_models.h"

namespace gradus::parallel::parity {

using Values = std::vector<double>;

inline constexpr int kSteps = 3;
inline constexpr double kMaxNorm = 0.5;  // less than any norm here: all steps clip
inline constexpr optim::AdamOptions kAdam{.beta1 = 0.8, .weight_decay = 0.1};

inline optim::Rates rates_of(int64_t update) {
  static const sched::Schedule lr = sched::warmup(0.01, 1, sched::cosine(0.01, 0.001, 4), 0.004);
  return {lr(update), kAdam.weight_decay};
}

/// How a step is laid out over ranks.
struct Plan {
  int dp = 1, tp = 1;
  bool sequence = false, zero = false;
  int micro_batches = 1;
  bool overlap = true, recompute = false;
};

struct Case {
  Family family;
  Plan plan{};
  Targets targets = Targets::uneven;
  DType drawn = DType::f64, dtype = DType::f64;  // in which values are drawn, and computed with
  bool on_gpus = false;                          // one for each rank

  Device device(int rank) const {
    if (!on_gpus) return kCpu;
    return {DeviceType::cuda, int8_t(rank)};
  }
};

/// "gpt2_tied_dp2_tp4_sp_zero_m2", and what else is unusual.
inline std::string name_of(const Case& c) {
  const Plan& p = c.plan;
  const char* kinds[] = {"", "_one", "_none", "_nowhere"};
  std::ostringstream name;
  name << c.family.name << "_dp" << p.dp << "_tp" << p.tp << (p.sequence ? "_sp" : "")
       << (p.zero ? "_zero" : "") << "_m" << p.micro_batches << kinds[int(c.targets)];
  if (c.dtype != DType::f64) name << '_' << c.dtype;
  if (c.on_gpus) name << "_gpus";
  return name.str();
}
inline std::ostream& operator<<(std::ostream& out, const Case& c) { return out << name_of(c); }

struct StepFound {
  double loss = 0, norm = 0;
  int64_t targets = 0, zeros = 0;
};

/// A model, its optimizer and its steps on the ranks of a world.
class Training {
 public:
  Training(const Communicator& world, const Case& c)
      : case_(c),
        device_(c.device(world.rank())),
        groups_(training_groups(model_grid(world, {.tp = c.plan.tp}))),
        model_(c.family.make({groups_.tp, c.plan.sequence})),
        adam_(started(), kAdam, arena_options(groups_, c.plan.zero, 1000)),
        precision_(adam_),
        finalizer_(adam_, groups_, c.plan.overlap) {
    model_.recompute_blocks(c.plan.recompute);
  }

  /// The end of a step as train/ has it: every backward starts from its share of the loss.
  StepFound step() {
    const int64_t M = case_.plan.micro_batches;
    const Counts all = counts_of_all();
    const Generator::State masks = dropout_.state();
    adam_.zero_grad();
    Tensor loss;
    for (int64_t m = 0; m < M; ++m) {
      dropout_.restore(masks);
      const Samples s = samples(m);
      const Tensor share = model_.share(s, all, Randomness(&dropout_, s.first));
      if (m + 1 == M) finalizer_.expect_last_backward();
      share.backward();
      loss = loss ? loss + share.detach() : share.detach();
    }
    const optim::StepOptions options{.max_norm = kMaxNorm, .count_zeros = true};
    const optim::StepResult result = precision_.request(rates_of, options);
    finalizer_.run(precision_, options);
    ++steps_;
    return {groups_.dp.all_reduce(loss).item(), result.grad_norm(), all.words, result.zeros()};
  }

  nn::Module& model() { return *model_.module; }
  const TrainingGroups& groups() const { return groups_; }
  const optim::FlatBuffer& flat() const { return adam_.flat(); }

  /// The unclipped gradient of the last step, as far as this rank has it: of the elements own_part(slot).
  Values gradient(const optim::Slot& slot) const {
    return flat().view(flat().gradients(), slot).to_vector();
  }

 private:
  std::vector<optim::ParameterGroup> started() {
    start(*model_.module, case_.family.deviation, case_.drawn, case_.dtype, device_);
    return optim::default_groups(*model_.module);
  }
  Samples samples(int64_t micro_batch) const {
    const int64_t dp = groups_.dp.size(), rows = kSamples / (dp * case_.plan.micro_batches);
    const int64_t first = (micro_batch * dp + groups_.dp.rank()) * rows;
    return {case_.targets, steps_, first, rows, case_.family.length(), device_};
  }
  Counts counts_of_all() const {
    Counts all;
    std::vector<int64_t> mine{0, 0};
    for (int64_t m = 0; m < case_.plan.micro_batches; ++m) {
      const Counts n = counts_of(samples(m));
      mine[0] += n.words, mine[1] += n.pairs;
    }
    const auto every = groups_.dp.all_gather_values(mine);
    for (size_t i = 0; i < every.size(); i += 2) all.words += every[i], all.pairs += every[i + 1];
    return all;
  }

  Case case_;
  Device device_;
  TrainingGroups groups_;
  Model model_;
  optim::Adam adam_;
  optim::MixedPrecision precision_;
  Finalizer finalizer_;
  Generator dropout_{77};
  int64_t steps_ = 0;
};

/// What one rank finds, with nothing of parallel/: one batch, the mean over its targets, the plain optimizer.
struct Reference {
  std::map<std::string, Values> start, gradients, parameters;  // gradients: of the first step
  StepFound steps[kSteps];
  double mean_size = 0;  // the root of the mean square of all gradients

  explicit Reference(const Case& c) {
    Model model = c.family.make({});
    parity::start(*model.module, c.family.deviation, c.drawn, c.dtype, c.device(0));
    optim::Adam adam(optim::default_groups(*model.module), kAdam);
    start = values_of(*model.module);
    Generator dropout(77);
    for (int k = 0; k < kSteps; ++k) {
      const Samples all{c.targets, k, 0, kSamples, c.family.length(), c.device(0)};
      adam.zero_grad();
      const Tensor loss = model.mean(all, &dropout);
      loss.backward();
      const optim::StepOptions options{.max_norm = kMaxNorm, .count_zeros = true};
      const optim::StepResult result = adam.request(rates_of, options);
      adam.run(options);
      steps[k] = {loss.item(), result.grad_norm(), counts_of(all).words, result.zeros()};
      if (k == 0) keep_gradients(adam.flat());
    }
    parameters = values_of(*model.module);
  }

 private:
  static std::map<std::string, Values> values_of(nn::Module& model) {
    std::map<std::string, Values> all;
    for (const auto& [name, p] : model.named_parameters()) all[name] = p.to_vector();
    return all;
  }
  void keep_gradients(const optim::FlatBuffer& flat) {
    double squares = 0, count = 0;
    for (const optim::Slot& slot : flat.slots()) {
      Values& g = gradients[slot.name()] = flat.view(flat.gradients(), slot).to_vector();
      for (double x : g) squares += x * x;
      count += double(g.size());
    }
    mean_size = std::sqrt(squares / count);
  }
};

/// The steps of one rank in the type and on the device of a case, computed once.
inline const Reference& reference_of(const Case& c) {
  static std::mutex mutex;
  static std::map<std::string, Reference> all;
  Case one = c;
  one.plan = {};
  const std::lock_guard lock(mutex);
  return all
      .try_emplace(
          name_of(one) + (c.family.is_wide ? "_wide_" : "_") + std::to_string(int(c.drawn)), one)
      .first->second;
}

/// Errors of a gradient, relative to its size: of the tensor, and of its worst row.
struct Errors {
  double tensor = 0, row = 0;
};

/// Of elements [begin, end) of a shard, `mine`, against the whole. A gradient that is small beside all
/// others is measured by those: that of a key's bias is noise. With `by_mean_row` a row is measured by the
/// mean row of its tensor at least.
inline Errors errors_of(const nn::Parameter& p, const Values& mine, const optim::OwnPart& own,
                        const Values& whole, double mean_size, bool by_mean_row = false) {
  const nn::ShardMap map(p.shape(), p.shard);
  const size_t rows = p.rank() > 1 ? size_t(p.global_shape()[0]) : 1, row = whole.size() / rows;
  Values error(rows), size(rows);
  for (size_t i = 0; i < whole.size(); ++i) size[i / row] += whole[i] * whole[i];
  for (int64_t i = own.begin; i < own.end; ++i) {
    const auto k = size_t(map(i));
    error[k / row] += (mine[size_t(i)] - whole[k]) * (mine[size_t(i)] - whole[k]);
  }
  double all_error = 0, all_size = 0;
  for (size_t r = 0; r < rows; ++r) all_error += error[r], all_size += size[r];
  const double mean_row = by_mean_row ? all_size / double(rows) : 0;
  const auto relative = [&](double e, double s, size_t n) {
    const double by = std::max(std::sqrt(s), 1e-3 * mean_size * std::sqrt(double(n)));
    return e == 0 ? 0 : std::sqrt(e) / by;
  };
  Errors found{.tensor = relative(all_error, all_size, whole.size())};
  for (size_t r = 0; r < rows; ++r)
    found.row = std::max(found.row, relative(error[r], std::max(size[r], mean_row), row));
  return found;
}

}  // namespace gradus::parallel::parity
