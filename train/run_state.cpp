#include "train/run_state.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "train/checkpoint_directory.h"
#include "train/checkpoint_writer.h"
#include "train/optimizers.h"
#include "train/writers.h"

namespace gradus::train {
namespace {

using nlohmann::json;

// The stored weights may have another type than the run: they are read in theirs.
LanguageModel initialized(const Settings& s, Device device, const CheckpointReader* weights,
                          const Ranks& ranks) {
  LanguageModel model(s, device, ranks.tp);
  if (!weights) {
    model.initialize(uint64_t(s.seed));
    return model;
  }
  model.module().cast(dtype_of(settings_of(*weights)));
  together(ranks.world,
           [&] { load_state(*weights, parameters_of(model.module()), Unexpected::ignore); });
  model.place();
  return model;
}

// "optimizer.m.blocks.0.qkv.weight" for the optimizer's "blocks.0.qkv.weight.m".
std::string stored_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  return "optimizer" + name.substr(dot) + "." + name.substr(0, dot);
}

// Of this rank.
std::vector<StateTensor> tensors_of(RunState& state) {
  const std::vector<nn::NamedParameter> parameters = state.model.module().named_parameters();
  const Ranks& ranks = state.ranks;
  const Writers writers(parameters, ranks.tp.size(), ranks.dp.size());
  const bool is_sliced = state.optimizer->flat().layout().options().slices > 1;
  const auto is_written = [&](const std::string& name, bool sliced) {
    return writers.writes(name, ranks.tp.rank(), ranks.dp.rank(), sliced);
  };
  std::vector<StateTensor> tensors;
  for (const auto& [name, p] : parameters)
    tensors.push_back({name, p, p.shard, {}, is_written(name, false)});
  for (const optim::NamedState& s : state.optimizer->state())
    tensors.push_back({stored_name(s.name), s.value, s.parameter.shard,
                       ShardRange{s.parameter.shape(), s.begin, s.end},
                       is_written(s.parameter.name(), is_sliced)});
  return tensors;
}

std::set<std::string> names_of_all(const std::vector<StateTensor>& tensors,
                                   const parallel::Communicator& world) {
  std::string mine;
  for (const StateTensor& t : tensors) mine += t.name + "\n";
  std::set<std::string> names;
  for (const std::string& text : world.all_gather_text(mine)) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) names.insert(name);
  }
  return names;
}

// What a rank wrote, for the first rank, which writes the index.
std::string text_of(const StoredTensors& tensors, int64_t step) {
  return to_text({.step = step, .score = {}, .meta = share({}), .tensors = tensors});
}

// Each rank writes its boxes into a file of its own; the first one publishes all of them.
std::string save_together(const Ranks& ranks, const std::string& directory, int64_t step,
                          const std::vector<StateTensor>& tensors, const json& meta,
                          std::optional<double> score, const Disk& disk) {
  const auto& world = ranks.world;
  const std::string file = "rank_" + std::to_string(world.rank()) + ".bin";
  std::optional<CheckpointWriter> writer;
  StoredTensors mine;
  together(world, [&] {
    if (ranks.is_first()) writer.emplace(directory, step, disk);
  });
  together(world, [&] {
    if (writer) return save_state(*writer, tensors);
    BoxFile boxes(disk, checkpoint_path(directory, step) + kTemporarySuffix, file);
    save_state(boxes, tensors);
    mine = boxes.finish();
  });
  const std::vector<std::string> written = world.all_gather_text(text_of(mine, step));
  together(world, [&] {
    if (!writer) return;
    for (size_t r = 1; r < written.size(); ++r)
      writer->add(parse_index(written[r], "what rank " + std::to_string(r) + " wrote").tensors);
    writer->publish(meta, score);
  });
  return checkpoint_path(directory, step);
}

optim::GradScaler::State scaler_from(const json& j) {
  return {j.at("scale"), j.at("good"), j.at("hysteresis")};
}

// Calls f, and says which checkpoint it was when JSON is not as expected.
template <class F>
auto read_meta(const CheckpointReader& reader, F&& f) {
  try {
    return f(reader.meta());
  } catch (const json::exception& error) {
    fail("", reader.path(), " was not written by this version of gradus train: ", error.what());
  }
}

}  // namespace

sched::LearningRate learning_rate(const Settings& s) {
  return {.init = s.warmup > 0 ? s.lr / double(s.warmup + 1) : 0,
          .max = s.lr,
          .min = s.min_lr,
          .warmup = s.warmup * s.batch,
          .decay = s.decay_steps * s.batch,
          .style = sched::RateStyle::cosine};
}

RunState::RunState(const Settings& s, Device device, const CheckpointReader* weights,
                   const Ranks& all)
    : ranks(all),
      model(initialized(s, device, weights, ranks)),
      optimizer(make_optimizer(s, model.module(), arena_options(ranks.groups(), s.zero))),
      precision(*optimizer, loss_scale(s)),
      finalizer(*optimizer, ranks.groups()),
      schedule(learning_rate(s), {.start = s.weight_decay, .end = s.weight_decay}),
      dropout(mix(uint64_t(s.seed) ^ fnv1a("dropout"))) {}

std::string RunState::save(const std::string& directory, const Settings& settings, const json& more,
                           std::optional<double> score, const Disk& disk) {
  json meta = {{"settings", to_json(settings)},
               {"depths", model.depths()},
               {"samples", samples},
               {"updates", optimizer->steps()},
               {"scheduled_samples", schedule.samples()},
               {"dropout", {{"seed", dropout.state().seed}, {"streams", dropout.state().streams}}}};
  if (precision.is_scaled()) {
    const optim::GradScaler::State scaler = precision.state();
    meta["loss_scale"] = {
        {"scale", scaler.scale}, {"good", scaler.good}, {"hysteresis", scaler.hysteresis}};
  }
  if (more.is_object()) meta.update(more);
  const std::string path =
      save_together(ranks, directory, step, tensors_of(*this), meta, score, disk);
  saved_step = step;
  return path;
}

void RunState::load(const CheckpointReader& reader) {
  struct Numbers {
    int64_t samples, updates, scheduled;
    Generator::State dropout;
    optim::GradScaler::State scaler;
  };
  const Numbers n = read_meta(reader, [this](const json& meta) {
    const json& dropout = meta.at("dropout");
    return Numbers{
        meta.at("samples"),
        meta.at("updates"),
        meta.at("scheduled_samples"),
        {dropout.at("seed"), dropout.at("streams")},
        precision.is_scaled() ? scaler_from(meta.at("loss_scale")) : optim::GradScaler::State{}};
  });
  sched::ParamScheduler loaded = schedule;
  loaded.load({n.scheduled, schedule.state().lr, schedule.state().decay});
  const std::vector<StateTensor> tensors = tensors_of(*this);
  const std::set<std::string> names = names_of_all(tensors, ranks.world);
  together(ranks.world, [&] { load_state(reader, tensors, Unexpected::error, names); });
  schedule = loaded;
  optimizer->restore_steps(n.updates);
  if (precision.is_scaled()) precision.restore(n.scaler);
  updates = n.updates;
  dropout.restore(n.dropout);
  samples = n.samples;
  step = saved_step = reader.index().step;
}

Settings settings_of(const CheckpointReader& reader) {
  return read_meta(reader, [](const json& meta) { return settings_from(meta.at("settings")); });
}

}  // namespace gradus::train
