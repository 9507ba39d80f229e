#pragma once
// A GPT and the steps of its training, on one rank of many: what bench/gpt_step measures.
#include <iostream>
#include <optional>

#include "bench/gpt_step_options.h"
#include "bench/step_clock.h"
#include "core/cuda_graph.h"
#include "models/gpt.h"
#include "nn/init.h"
#include "optim/adam.h"
#include "parallel/finalize.h"

namespace gradus::bench {

struct Training {
  const Options& o;
  Device device;
  parallel::ProcessGrid grid;
  parallel::TrainingGroups groups = parallel::training_groups(grid);
  Gpt gpt;
  optim::Adam adam;
  optim::MixedPrecision precision{adam};
  std::optional<parallel::Finalizer> finalizer{};  // of more than one rank
  train::DeviceBatch batch;
  std::optional<CudaGraph> graph{};
  Tensor loss{};          // of the last step and this rank, on the device
  double enqueue_ms = 0;  // host time of all steps
  const optim::StepOptions update{.max_norm = 1};

  Training(const Options& options, Device d, const parallel::Communicator& world)
      : o(options),
        device(d),
        grid(parallel::model_grid(world, {.tp = options.tp})),
        gpt(options.model, {groups.tp, options.sequence}),
        adam(optim::default_groups(placed()), {.beta2 = 0.95, .weight_decay = 0.1},
             parallel::arena_options(groups, options.zero)),
        batch(d, options.batch * options.accumulate, options.length) {
    if (world.size() > 1) finalizer.emplace(adam, groups);
    if (finalizer && o.hold >= 0) finalizer->hold_back(o.hold);
    if (o.graph) graph.emplace(device);
  }

  Gpt& placed() {
    gpt.to(device);
    nn::initialize(gpt, 1);  // the same numbers on every device
    gpt.cast(o.dtype == "bf16" ? DType::bf16 : DType::f32);
    return gpt;
  }

  /// What is captured: all but the choice of the batch and the request of an update.
  void compute() {
    adam.zero_grad();
    Tensor total;
    for (int64_t m = 0; m < o.accumulate; ++m) {
      const int64_t first = m * o.batch;
      const Tensor part = gpt.loss(batch.inputs(first, o.batch), batch.targets(first, o.batch), {},
                                   {.scale = 1.0 / double(o.accumulate * o.dp)});
      if (finalizer && m + 1 == o.accumulate) finalizer->expect_last_backward();
      part.backward();
      total = total ? total + part.detach() : part.detach();
    }
    loss = total;
    Scope scope("optimizer");
    finalizer ? finalizer->run(precision, update) : precision.run(update);
  }

  void step(const train::Batch& ids) {
    batch.load(ids);
    const TimeMark start(kCpu);
    precision.request([&](int64_t) { return optim::Rates{3e-4, adam.weight_decay()}; }, update);
    graph ? graph->run_or_replay([&] { compute(); }) : compute();
    enqueue_ms += TimeMark(kCpu).since(start);
  }

  /// All elements, cut or not.
  int64_t parameters() {
    int64_t n = 0;
    for (const nn::Parameter& p : gpt.parameters()) n += p.global_shape().numel();
    return n;
  }
  /// Of the last step, over all its samples. By all ranks.
  double mean_loss() const { return groups.dp.all_reduce(loss).item(); }
};

}  // namespace gradus::bench
