#include "nn/module.h"

#include <set>

#include "ops/ops.h"

namespace gradus::nn {

Fields& Fields::operator()(const std::string& name, Parameter& p) {
  if (p && on_parameter_) on_parameter_(prefix_ + name, p);
  return *this;
}

Fields& Fields::operator()(const std::string& name, Module& m) {
  if (on_module_) on_module_(prefix_ + name, m);
  std::string before = prefix_;
  prefix_ += name + ".";
  m.fields(*this);
  prefix_ = std::move(before);
  return *this;
}

std::vector<NamedParameter> Module::named_parameters() {
  std::vector<NamedParameter> all;
  std::set<TensorImpl*> seen;
  Fields f([&](const std::string& name, Parameter& p) {
    if (seen.insert(p.impl()).second) all.push_back({name, p});
  });
  fields(f);
  return all;
}

std::vector<Parameter> Module::parameters() {
  std::vector<Parameter> all;
  for (NamedParameter& p : named_parameters()) all.push_back(std::move(p.parameter));
  return all;
}

void Module::zero_grad() {
  for (const Parameter& p : parameters()) p.zero_grad();
}

void Module::to(Device device) {
  for (const Parameter& p : parameters()) p.set_data(gradus::to(p.detach(), device));
}

void Module::cast(DType dtype) {
  check(is_floating(dtype), "a module cannot be cast to ", dtype, ": parameters are floating");
  for (const Parameter& p : parameters()) p.set_data(gradus::cast(p.detach(), dtype));
}

void Module::train(bool on) {
  training = on;
  Fields f({}, [on](const std::string&, Module& m) { m.training = on; });
  fields(f);
}

void name_parameters(Module& module) {
  for (const auto& [name, parameter] : module.named_parameters()) parameter.set_name(name);
}

}  // namespace gradus::nn
