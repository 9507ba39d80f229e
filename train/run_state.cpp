#include "train/run_state.h"

#include <nlohmann/json.hpp>

#include "train/checkpoint_writer.h"
#include "train/optimizers.h"

namespace gradus::train {
namespace {

using nlohmann::json;

// The stored weights may have another type than the run: they are read in theirs.
LanguageModel initialized(const Settings& s, Device device, const CheckpointReader* weights) {
  LanguageModel model(s, device);
  if (!weights) {
    model.initialize(uint64_t(s.seed));
    return model;
  }
  model.module().cast(dtype_of(settings_of(*weights)));
  load_state(*weights, parameters_of(model.module()), Unexpected::ignore);
  model.place();
  return model;
}

// "optimizer.m.blocks.0.qkv.weight" for the optimizer's "blocks.0.qkv.weight.m".
std::string stored_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  return "optimizer" + name.substr(dot) + "." + name.substr(0, dot);
}

std::vector<StateTensor> tensors_of(RunState& state) {
  std::vector<StateTensor> tensors = parameters_of(state.model.module());
  for (const optim::NamedState& s : state.optimizer->state())
    tensors.push_back({stored_name(s.name), s.value, {}});
  return tensors;
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

RunState::RunState(const Settings& s, Device device, const CheckpointReader* weights)
    : model(initialized(s, device, weights)),
      optimizer(make_optimizer(s, model.module())),
      precision(*optimizer, loss_scale(s)),
      schedule(learning_rate(s), {.start = s.weight_decay, .end = s.weight_decay}),
      dropout(mix(uint64_t(s.seed) ^ fnv1a("dropout"))) {}

std::string RunState::save(const std::string& directory, const Settings& settings, const json& more,
                           std::optional<double> score, const Disk& disk) {
  CheckpointWriter writer(directory, step, disk);
  save_state(writer, tensors_of(*this));
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
  const std::string path = writer.publish(meta, score);
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
  load_state(reader, tensors_of(*this));
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
