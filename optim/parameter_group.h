#pragma once
// Which parameters are updated alike.
//
// Weight decay pulls a matrix towards small weights, which is a prior on a map. On what scales or
// shifts a whole feature (norms, biases: the one-dimensional parameters) it would only be a bias
// towards the wrong scale, so by default those are not decayed.
#include <limits>
#include <ostream>

#include "nn/module.h"

namespace gradus::optim {

struct ParameterGroup {
  std::string name{};
  std::vector<nn::Parameter> parameters{};
  double lr_scale = 1;            // times the learning rate of the step
  double weight_decay_scale = 1;  // times the optimizer's weight decay
  bool whole_matrices = false;    // updated matrix by matrix, by an optimizer that can (Muon)
  double min_lr = 0;              // the group's learning rate is at least this,
  double max_lr = std::numeric_limits<double>::infinity();  // and at most that
};

/// Two groups: "decayed", the parameters of two or more dimensions, and "not decayed", the others.
/// Parameters that require no gradient are left out; an empty group, too. Error if the module has not
/// been given values (see nn::initialize).
std::vector<ParameterGroup> default_groups(nn::Module& module);
std::vector<ParameterGroup> default_groups(const Tensors& leaves);

/// The same with a third group, last: "matrices", those of two dimensions that are neither tables of an
/// nn::Embedding nor among `not_matrices` (names: output heads, learned positions).
std::vector<ParameterGroup> matrix_groups(nn::Module& module,
                                          const std::vector<std::string>& not_matrices = {});

/// A table: each group with its factors and its parameters.
std::ostream& operator<<(std::ostream& out, const std::vector<ParameterGroup>& groups);

}  // namespace gradus::optim
