#pragma once
// A module is a struct that lists its fields:
//
//   struct Mlp final : nn::Module {
//     nn::Linear up{2, 8}, down{8, 1};
//     Tensor operator()(const Tensor& x) const { return down(tanh(up(x))); }
//     void fields(nn::Fields& f) override { f("up", up)("down", down); }
//   };
//   Mlp mlp;
//   nn::initialize(mlp, 7);                    // names and first values, from seed 7 (nn/init.h)
//
// Parameters, names ("up.weight"), checkpoints, moves between devices and summaries come from that
// list. There is no virtual forward: each operator() has the signature that its mathematics has.
#include <functional>
#include <string>
#include <vector>

#include "nn/parameter.h"

namespace gradus::nn {

struct Module;

/// Walks a module: is told each field by its own name and calls back with the full one.
class Fields {
 public:
  using OnParameter = std::function<void(const std::string& name, Parameter&)>;
  using OnModule = std::function<void(const std::string& name, Module&)>;
  explicit Fields(OnParameter on_parameter, OnModule on_module = {})
      : on_parameter_(std::move(on_parameter)), on_module_(std::move(on_module)) {}

  Fields& operator()(const std::string& name, Parameter& p);  // an absent one is passed over
  Fields& operator()(const std::string& name, Module& m);
  /// Modules in a row: "blocks.0", "blocks.1", …
  template <class M>
  Fields& operator()(const std::string& name, std::vector<M>& list) {
    for (size_t i = 0; i < list.size(); ++i) (*this)(name + "." + std::to_string(i), list[i]);
    return *this;
  }

 private:
  OnParameter on_parameter_;
  OnModule on_module_;
  std::string prefix_;
};

struct NamedParameter {
  std::string name;
  Parameter parameter;
};

struct Module {
  bool training = true;  // dropout drops

  Module() = default;
  Module(const Module&) = delete;  // a copy would share its parameters with the original
  Module& operator=(const Module&) = delete;
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;
  virtual ~Module() = default;
  virtual void fields(Fields& f) = 0;

  /// Every parameter once, in the order of the fields. One that is listed twice (tied) has the first
  /// of its names.
  std::vector<NamedParameter> named_parameters();
  std::vector<Parameter> parameters();
  void zero_grad();
  /// Move every parameter in place: all who hold it see the change, and ties stay tied. Gradients are
  /// forgotten, so make the optimizer afterwards.
  void to(Device device);
  void cast(DType dtype);
  /// Sets `training` here and in all modules below.
  void train(bool on = true);
  void eval() { train(false); }
};

/// Gives every parameter its full name, for error messages.
void name_parameters(Module& module);

/// Evaluation mode for the length of a scope.
class Evaluating {
 public:
  explicit Evaluating(Module& m) : module_(m), before_(m.training) { m.eval(); }
  ~Evaluating() { module_.train(before_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  Module& module_;
  bool before_;
};

}  // namespace gradus::nn
