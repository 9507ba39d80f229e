#pragma once
// The tensors of a model in a directory of Hugging Face: in model.safetensors, or in the files that
// model.safetensors.index.json names.
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "autograd/tensor.h"
#include "train/safetensors.h"

namespace gradus::train {

class HfWeights {
 public:
  /// A file of the model without its heads leaves the `prefix` of every name away, the first release of
  /// BERT ends those of norms on gamma and beta: here all have the names of today.
  HfWeights(const std::string& directory, const std::string& prefix);

  struct Place {
    const SafetensorsFile* file;
    std::string name;  // in the file
    const SafetensorsEntry& entry() const { return file->tensors().at(name); }
  };
  const std::map<std::string, Place>& tensors() const { return tensors_; }
  const Place& at(const std::string& name) const;

  /// A copy in host memory, in its type. Error when gradus has no such type.
  Tensor tensor(const std::string& name) const;

 private:
  void add(const std::string& path);
  void check_against(const std::string& index, const nlohmann::json& weight_map) const;

  std::deque<SafetensorsFile> files_;
  std::map<std::string, Place> tensors_;
};

}  // namespace gradus::train
