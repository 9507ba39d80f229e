#include "train/checkpoint_diff.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "train/run_state.h"

namespace gradus::train {
namespace {

using nlohmann::json;

// Names of the tensors of that kind, without their prefix, and what they are stored as.
std::map<std::string, std::string> names_of(const CheckpointReader& reader,
                                            const std::string& kind) {
  const std::string optimizer = "optimizer.", prefix = optimizer + kind + ".";
  std::map<std::string, std::string> names;
  for (const auto& [name, tensor] : reader.index().tensors)
    if (kind == "parameters" && !name.starts_with(optimizer))
      names[name] = name;
    else if (name.starts_with(prefix))
      names[name.substr(prefix.size())] = name;
  return names;
}

Tensor read_whole(const CheckpointReader& reader, const std::string& name) {
  const StoredTensor& stored = reader.index().tensors.at(name);
  const Tensor tensor = empty(stored.shape, stored.dtype);
  const WantedBox all{name, stored.dtype, stored.shape, whole_box(stored.shape), tensor.raw()};
  reader.load({&all, 1}, Unexpected::ignore);
  return tensor;
}

// JSON has no word for what is not finite.
double number_in(const json& j) {
  return j.is_number() ? j.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

void add_numbers(ConsistencyCheck& both, const CheckpointReader& left,
                 const CheckpointReader& right) {
  const char* key = "last_step";
  for (const CheckpointReader* side : {&left, &right})
    if (!side->meta().contains(key))
      return both.add_fault(side->path() + " does not say what loss and norm its last step had");
  const json &l = left.meta()[key], &r = right.meta()[key];
  both.add_number("loss", number_in(l.at("loss")), number_in(r.at("loss")));
  both.add_number("norm", number_in(l.at("grad_norm")), number_in(r.at("grad_norm")));
  both.add_count("targets", l.at("targets"), r.at("targets"));
}

// Rounding is that of the coarser type.
Bound bound_for(const Settings& left, const Settings& right, const DiffOptions& options) {
  if (options.bound) return Bound::flat(*options.bound);
  const Bound a = bound_of(dtype_of(left)), b = bound_of(dtype_of(right));
  return a.at(0) > b.at(0) ? a : b;
}

}  // namespace

ConsistencyReport diff(const CheckpointReader& left, const CheckpointReader& right,
                       const DiffOptions& options) {
  check(left.index().step == right.index().step, "", left.path(), " is of step ", left.index().step,
        ", ", right.path(), " of step ", right.index().step, ": name two checkpoints of one step");
  const Settings settings = settings_of(left);
  const auto mine = names_of(left, options.kind), theirs = names_of(right, options.kind);
  const json depths = left.meta().value("depths", json::object());
  ConsistencyCheck both(bound_for(settings, settings_of(right), options), settings.layers);
  for (const auto& [name, stored] : mine) {
    if (!theirs.contains(name)) {
      both.add_fault(name + " is on the left only");
      continue;
    }
    // One without a depth is bounded as if nothing came after it.
    both.add(name, depths.value(name, settings.layers), read_whole(left, stored),
              read_whole(right, theirs.at(name)));
  }
  for (const auto& [name, stored] : theirs)
    if (!mine.contains(name)) both.add_fault(name + " is on the right only");
  add_numbers(both, left, right);
  return both.finish();
}

std::vector<std::string> gradient_caveats(const Settings& s) {
  std::vector<std::string> list;
  if (s.optimizer != "adamw" && s.optimizer != "adam")
    list.push_back("--optimizer " + s.optimizer + " has no Adam moments: take --optimizer adamw");
  if (s.beta1 != 0 || s.beta2 != 0)
    list.push_back("the moments are means over steps, not the gradient: take --beta1 0 --beta2 0");
  if (s.clip != 0)
    list.push_back("clipping hides a wrong factor that all gradients share: take --clip 0");
  if (s.optimizer == "adam" && s.weight_decay != 0)
    list.push_back("Adam's decay is part of the moments: take --optimizer adamw");
  return list;
}

}  // namespace gradus::train
