#include "optim/parameter_group.h"

namespace gradus::optim {
namespace {

std::vector<ParameterGroup> by_rank(const std::vector<nn::Parameter>& parameters) {
  ParameterGroup decayed{.name = "decayed"};
  ParameterGroup others{.name = "not decayed", .weight_decay_scale = 0};
  for (const nn::Parameter& p : parameters) {
    if (!p.requires_grad()) continue;
    (p.rank() >= 2 ? decayed : others).parameters.push_back(p);
  }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* g : {&decayed, &others})
    if (!g->parameters.empty()) groups.push_back(std::move(*g));
  return groups;
}

}  // namespace

std::vector<ParameterGroup> default_groups(nn::Module& module) {
  for (const auto& [name, p] : module.named_parameters())
    check(!p.name().empty(), "the parameter ", name,
          " has no values yet: call nn::initialize(module, "
          "seed), or load a checkpoint, before making an optimizer");
  return by_rank(module.parameters());
}

std::vector<ParameterGroup> default_groups(const Tensors& leaves) {
  std::vector<nn::Parameter> parameters;
  for (const Tensor& t : leaves) parameters.emplace_back(t);
  return by_rank(parameters);
}

std::ostream& operator<<(std::ostream& out, const std::vector<ParameterGroup>& groups) {
  for (const ParameterGroup& g : groups) {
    int64_t elements = 0;
    for (const nn::Parameter& p : g.parameters) elements += p.numel();
    out << g.name << ": learning rate × " << g.lr_scale << ", weight decay × "
        << g.weight_decay_scale;
    if (g.max_lr) out << ", learning rate at most " << *g.max_lr;
    if (g.min_lr) out << ", at least " << *g.min_lr;
    out << "; " << g.parameters.size() << " parameters, " << elements << " elements\n";
    for (const nn::Parameter& p : g.parameters) out << "  " << p.describe() << "\n";
  }
  return out;
}

}  // namespace gradus::optim
