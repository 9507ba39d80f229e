#include "optim/parameter_group.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "nn/embedding.h"

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

void check_initialized(nn::Module& module) {
  for (const auto& [name, p] : module.named_parameters())
    check(!p.name().empty(), "the parameter ", name,
          " has no values yet: call nn::initialize(module, "
          "seed), or load a checkpoint, before making an optimizer");
}

/// The tables of all embeddings in a module.
std::set<const TensorImpl*> tables_of(nn::Module& module) {
  std::set<const TensorImpl*> tables;
  nn::Fields visit([](const std::string&, nn::Parameter&) {},
                   [&](const std::string&, nn::Module& m) {
                     if (auto* e = dynamic_cast<nn::Embedding*>(&m))
                       tables.insert(e->weight.impl());
                   });
  module.fields(visit);
  return tables;
}

}  // namespace

std::vector<ParameterGroup> default_groups(nn::Module& module) {
  check_initialized(module);
  return by_rank(module.parameters());
}

std::vector<ParameterGroup> matrix_groups(nn::Module& module,
                                          const std::vector<std::string>& not_matrices) {
  check_initialized(module);
  const std::set<const TensorImpl*> tables = tables_of(module);
  ParameterGroup matrices{.name = "matrices", .whole_matrices = true};
  std::vector<nn::Parameter> others;
  for (const auto& [name, p] : module.named_parameters()) {
    const bool named = std::count(not_matrices.begin(), not_matrices.end(), name) > 0;
    const bool is_matrix = p.rank() == 2 && !named && !tables.count(p.impl());
    (is_matrix && p.requires_grad() ? matrices.parameters : others).push_back(p);
  }
  std::vector<ParameterGroup> groups = by_rank(others);
  if (!matrices.parameters.empty()) groups.push_back(std::move(matrices));
  return groups;
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
    if (g.min_lr > 0) out << ", learning rate at least " << g.min_lr;
    if (std::isfinite(g.max_lr)) out << ", learning rate at most " << g.max_lr;
    out << "; " << g.parameters.size() << " parameters, " << elements << " elements\n";
    for (const nn::Parameter& p : g.parameters) out << "  " << p.describe() << "\n";
  }
  return out;
}

}  // namespace gradus::optim
